"""The peers that shorten texts, each in its own environment, called through JSON lines.

Law: trimtab's environment imports nothing of theirs. They do not keep to a budget, so head and tail shorten the rest.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from bench.material.tool_outputs import Output
from bench.peers.environments import MissingPeerError, ask_peer, find_program, write_vocabulary
from bench.retention.score import is_json

HEADROOM, HEADROOM_BY_KIND, LLMLINGUA = "headroom", "headroom-by-kind", "llmlingua2"
NO_MODEL = "no model"
"""Why a peer cannot run whose model was not given."""


def shorten_by_headroom(folder: Path, outputs: Sequence[Output], way: str = HEADROOM) -> Mapping[str, str]:
    """Headroom's texts by the name of the output: by its own choice, or by kind. Raises MissingPeerError."""
    python = find_program(folder, HEADROOM, "python")
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as home:
        own = {"HOME": home, "TIKTOKEN_CACHE_DIR": str(write_vocabulary(Path(home)))}
        return _ask(python, (way,), outputs, own)


def shorten_by_llmlingua(
    folder: Path, outputs: Sequence[Output], model: Path | None, limit_tokens: int
) -> Mapping[str, str]:
    """LLMLingua-2's texts, asked for `limit_tokens`, by the name of the output. Raises MissingPeerError."""
    if model is None:
        raise MissingPeerError(NO_MODEL)
    python = find_program(folder, "llmlingua", "python")
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as home:
        # It counts with an old vocabulary, and would download it.
        own = {"TIKTOKEN_CACHE_DIR": str(write_vocabulary(Path(home), "cl100k_base"))}
        return _ask(python, (LLMLINGUA, str(model), str(limit_tokens)), outputs, own)


def _ask(python: Path, arguments: Sequence[str], outputs: Sequence[Output], own: Mapping[str, str]) -> dict[str, str]:
    lines = b"".join(orjson.dumps(_write(output)) + b"\n" for output in outputs)
    answers = [orjson.loads(line) for line in ask_peer(python, "shorten", *arguments, lines=lines, own=own)]
    for output, answer in zip(outputs, answers, strict=True):
        print(f"{arguments[0]}: {output.name}: {answer['seconds']:.1f} s {answer['how']}".rstrip(), file=sys.stderr)
    return {output.name: answer["text"] for output, answer in zip(outputs, answers, strict=True)}


def _write(output: Output) -> dict[str, object]:
    call = {"name": output.call.name, "arguments": output.call.arguments} if output.call else None
    return {"text": output.text, "form": _find_form(output), "task": output.task, "call": call}


def _find_form(output: Output) -> str:
    if is_json(output.text):
        return "json"
    forms = (("log", output.is_diagnostic), ("search", "grep" in output.kind), ("diff", "diff" in output.kind))
    return next((form for form, fits in forms if fits), "other")
