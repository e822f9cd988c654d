"""Recorded tool outputs, with the facts that a reader needs of each.

Law: the index alone decides what is a diagnostic, by one rule for all folders.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.material.corpora import TOOL_OUTPUTS
from trimtab.rules.conversation import ToolCall

INDEX = "index.jsonl"
DIAGNOSTIC_WORDS = frozenset(
    {
        "test", "tests", "pytest", "unittest", "tox", "build", "msbuild", "make", "compiler", "compile", "gcc", "rustc",
        "errors", "mypy", "tsc", "lint", "diagnostics", "audit", "security", "debug", "message", "service",
    }
)  # fmt: skip
FILE_WORDS = frozenset({"file", "source"})


@dataclass(frozen=True, slots=True)
class Output:
    """A tool output: the text, and its facts as exact substrings. `task` and `call` are None if unknown."""

    name: str
    kind: str
    text: str
    facts: tuple[str, ...]
    is_diagnostic: bool
    is_file: bool
    task: str | None = None
    call: ToolCall | None = None


def load_outputs(folder: Path = TOOL_OUTPUTS, calls: Path | None = None) -> list[Output]:
    """The outputs of a folder, by its index.

    `calls` is JSONL of {file, call: {name, arguments}}; such a call replaces the one in the index. Raises
    FileNotFoundError if there is no index.
    """
    given = {row["file"]: row["call"] for row in _read_lines(calls)} if calls else {}
    return [_read(folder, row, given.get(row["file"], row.get("call"))) for row in _read_lines(folder / INDEX)]


def _read_lines(file: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in file.read_bytes().splitlines() if line.strip()]


def _read(folder: Path, row: Mapping[str, Any], call: Mapping[str, Any] | None) -> Output:
    kind = row["kind"]
    return Output(
        name=row["file"],
        kind=kind,
        # Unchanged line ends, as the proxy receives them.
        text=(folder / row["file"]).read_bytes().decode("utf-8", "replace"),
        facts=tuple(row["facts"]),
        is_diagnostic=row.get("diagnostic", is_diagnostic(kind)),
        is_file=not FILE_WORDS.isdisjoint(_split_words(kind)),
        task=row.get("task"),
        call=_read_call(call) if call else None,
    )


def is_diagnostic(kind: str) -> bool:
    """Whether a kind is a log or names a tool that reports problems.

    A kind has parts joined by `+`, such as `build+pytest-log`. A part that begins with `git` never counts.
    """
    parts = [_split_words(part) for part in kind.split("+")]
    return any(
        words[-1] == "log" or not DIAGNOSTIC_WORDS.isdisjoint(words) for words in parts if words and words[0] != "git"
    )


def _split_words(kind: str) -> Sequence[str]:
    return re.findall(r"[a-z]+", kind.lower())


def _read_call(call: Mapping[str, Any]) -> ToolCall:
    arguments = call["arguments"]
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return ToolCall(id=call.get("id", "call"), name=call["name"], arguments=text)
