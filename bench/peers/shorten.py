"""Runs inside a peer's environment: tool outputs in, the peer's shorter texts out, as JSON lines.

    python -m bench.peers.shorten headroom
    python -m bench.peers.shorten headroom-by-kind
    python -m bench.peers.shorten llmlingua2 MODEL LIMIT_TOKENS

Input: {text, form, task, call}; `form` is json, log, search, diff or other. Output: {text, how, seconds}; `how` is the
peer's own description of what it did.
"""

import json  # noqa: TID251 - a peer's environment has no orjson
import sys
import time
from collections.abc import Callable
from typing import Any

Wire = dict[str, Any]
Answer = tuple[str, str]

NO_TASK = "Go on."
"""The user message if the recording has none. Chosen: without a hint for a compressor."""
NO_CALL = {"name": "bash", "arguments": "{}"}


def make_headroom() -> Callable[[Wire], Answer]:
    """`headroom.compress`, the package's main function, on a call and its result.

    All settings are defaults, with two exceptions. Kompress, its compressor for prose, is off because it needs a model
    from the network. The protection of the last four messages is off because there are no others.
    """
    from headroom import compress  # noqa: PLC0415

    def shorten(wire: Wire) -> Answer:
        call = {"id": "call_1", "type": "function", "function": wire["call"] or NO_CALL}
        messages = [
            {"role": "user", "content": wire["task"] or NO_TASK},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": wire["text"]},
        ]
        result = compress(messages, model="gpt-4o", kompress_model="disabled", protect_recent=0)
        ways = [way for way in result.transforms_applied if not way.endswith("user_message")]
        return result.messages[-1]["content"], " ".join(ways)

    return shorten


def make_headroom_by_kind() -> Callable[[Wire], Answer]:
    """The compressor that Headroom has for the form of an output; its own choice if it has none for it.

    By itself it seldom uses them, because it classifies most logs as mixed.
    """
    from headroom.transforms.diff_compressor import DiffCompressor  # noqa: PLC0415
    from headroom.transforms.log_compressor import LogCompressor  # noqa: PLC0415
    from headroom.transforms.search_compressor import SearchCompressor  # noqa: PLC0415
    from headroom.transforms.smart_crusher import SmartCrusher  # noqa: PLC0415

    choose = make_headroom()
    ways: dict[str, Callable[[str, str], str]] = {
        "json": lambda text, task: str(SmartCrusher().crush(text, task).compressed),
        "log": lambda text, task: str(LogCompressor().compress(text, task).compressed),
        "search": lambda text, task: str(SearchCompressor().compress(text, task).compressed),
        "diff": lambda text, task: str(DiffCompressor().compress(text, task).compressed),
    }

    def shorten(wire: Wire) -> Answer:
        form = wire["form"]
        return (ways[form](wire["text"], wire["task"] or ""), form) if form in ways else choose(wire)

    return shorten


def make_llmlingua(model: str, limit_tokens: str) -> Callable[[Wire], Answer]:
    """LLMLingua-2 with a model from disk, asked for `limit_tokens` for the whole output.

    It processes any length piece by piece. Line ends and digits are forced to stay, as in its own examples.
    """
    from llmlingua import PromptCompressor  # noqa: PLC0415

    compressor = PromptCompressor(model_name=model, device_map="cpu", use_llmlingua2=True)

    def shorten(wire: Wire) -> Answer:
        result = compressor.compress_prompt_llmlingua2(
            [wire["text"]], target_token=int(limit_tokens), force_tokens=["\n"], force_reserve_digit=True
        )
        return result["compressed_prompt"], str(result["rate"])

    return shorten


MAKERS: dict[str, Callable[..., Callable[[Wire], Answer]]] = {
    "headroom": make_headroom,
    "headroom-by-kind": make_headroom_by_kind,
    "llmlingua2": make_llmlingua,
}


def main() -> None:
    name, *options = sys.argv[1:]
    output = sys.stdout
    # What a library prints must not get between the answers.
    sys.stdout = sys.stderr
    shorten = MAKERS[name](*options)
    for line in sys.stdin:
        wire = json.loads(line)
        started = time.process_time()
        text, how = shorten(wire)
        answer = {"text": text, "how": how, "seconds": time.process_time() - started}
        output.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
