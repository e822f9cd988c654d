"""The peers that shorten texts: each in an environment of its own, asked through JSON lines.

Law: our own environment imports nothing of theirs. They take no budget that they keep to, so head and tail finish it.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
from peers import MissingPeerError, find_program
from proxies import HEADROOM_ENVIRONMENT, write_vocabulary
from retention_score import is_json
from tool_outputs import Output

HEADROOM, HEADROOM_BY_KIND, LLMLINGUA = "headroom", "headroom-by-kind", "llmlingua2"
NO_MODEL = "no model"
"""What a peer is missing that needs weights which nobody gave."""


def shorten_by_headroom(folder: Path, outputs: Sequence[Output], way: str = HEADROOM) -> Mapping[str, str]:
    """By name of the output, what Headroom makes of it: in its own way, or by kind. Raises MissingPeerError."""
    python = find_program(folder, HEADROOM, "python")
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as home:
        own = {"HOME": home, "TIKTOKEN_CACHE_DIR": str(write_vocabulary(Path(home)))}
        return _ask([str(python), _script(), way], outputs, {**HEADROOM_ENVIRONMENT, **own})


def shorten_by_llmlingua(
    folder: Path, outputs: Sequence[Output], model: Path | None, limit_tokens: int
) -> Mapping[str, str]:
    """By name, what LLMLingua-2 makes of an output that is to have `limit_tokens`. Raises MissingPeerError."""
    if model is None:
        raise MissingPeerError(NO_MODEL)
    python = find_program(folder, "llmlingua", "python")
    command = [str(python), _script(), LLMLINGUA, str(model), str(limit_tokens)]
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as home:
        # It counts by an old vocabulary, and would fetch that.
        own = {"TIKTOKEN_CACHE_DIR": str(write_vocabulary(Path(home), "cl100k_base"))}
        return _ask(command, outputs, {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", **own})


def _script() -> str:
    return str(Path(__file__).with_name("peer_shorten.py"))


def _ask(command: Sequence[str], outputs: Sequence[Output], own: Mapping[str, str]) -> dict[str, str]:
    lines = b"".join(orjson.dumps(_write(output)) + b"\n" for output in outputs)
    finished = subprocess.run(
        command, input=lines, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **own}, check=True
    )
    answers = [orjson.loads(line) for line in finished.stdout.splitlines()]
    for output, answer in zip(outputs, answers, strict=True):
        print(f"{command[2]}: {output.name}: {answer['seconds']:.1f} s {answer['how']}".rstrip(), file=sys.stderr)
    return {output.name: answer["text"] for output, answer in zip(outputs, answers, strict=True)}


def _write(output: Output) -> dict[str, object]:
    call = {"name": output.call.name, "arguments": output.call.arguments} if output.call else None
    return {"text": output.text, "form": _find_form(output), "task": output.task, "call": call}


def _find_form(output: Output) -> str:
    if is_json(output.text):
        return "json"
    forms = (("log", output.is_diagnostic), ("search", "grep" in output.kind), ("diff", "diff" in output.kind))
    return next((form for form, fits in forms if fits), "other")
