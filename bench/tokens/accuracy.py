"""Measures how close counts are to what the API reported for the same requests, by kind of request.

Law: all methods get the same complete requests; the table says how many a method cannot count.
"""

import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import orjson
import tiktoken

from bench.harness.counting import VOCABULARIES, Codec, load_encoding, make_counter, read_body
from bench.material.workload import RECORDED
from bench.peers.environments import MissingPeerError, ask_peer, find_program
from trimtab.rules.tokens.families import find_family

GOLDEN = RECORDED.with_name("golden_prompt_tokens.jsonl")
GROUPS = (
    "plain",
    "tools",
    "tools + tool calls",
    "response_format json_schema",
    "reasoning, plain",
    "reasoning, with tools",
    "images, audio, files",
    "legacy functions",
)
_MEDIA = frozenset({"image_url", "file", "input_audio", "websearch"})
PEER_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Golden:
    """A recorded request, and the tokens of its prompt as the API reported them."""

    group: str
    reported: int
    request: dict[str, Any]

    @property
    def model(self) -> str:
        """The model of the request; some recordings do not have it in the request itself."""
        return str(self.request["model"])


Counts = Sequence[int | None]
"""A method's count of each request; None if it raised an error."""


def load_golden() -> list[Golden]:
    """The recorded requests; none if the file is missing."""
    if not GOLDEN.is_file():
        return []
    rows = map(orjson.loads, GOLDEN.read_bytes().splitlines())
    return [Golden(_group(row), row["prompt_tokens"], {"model": row["model"], **row["request"]}) for row in rows]


def _group(row: dict[str, Any]) -> str:
    features = set(row["features"])
    has_calls, has_tools = "tool_calls" in features, "tools" in features
    if features & _MEDIA:
        return "images, audio, files"
    if "json_schema" in features:
        return "response_format json_schema"
    if features & {"functions", "function_call"}:
        return "legacy functions"
    if find_family(row["model"]).costs.is_reasoning:
        return "reasoning, with tools" if has_tools or has_calls else "reasoning, plain"
    if has_calls:
        return "tools + tool calls"
    return "tools" if has_tools else "plain"


def count_all(rows: Sequence[Golden], peers: Path) -> dict[str, Counts]:
    """Each method's counts, without LiteLLM's if it is not installed."""
    encodings = {name: load_encoding(name) for name in VOCABULARIES}
    counts: dict[str, Counts] = {"trimtab": _count_ours(rows, encodings)}
    with suppress(MissingPeerError):
        counts[f"LiteLLM {read_version(peers)}"] = _count_by_litellm(rows, peers)
    counts["tiktoken on the JSON"] = [_count_json(row, encodings) for row in rows]
    counts["characters / 4"] = [round(len("".join(_read_texts(row.request["messages"]))) / 4) for row in rows]
    return counts


def read_version(peers: Path) -> str:
    """The version of LiteLLM. Raises MissingPeerError."""
    python = find_program(peers, "litellm", "python")
    command = [str(python), "-c", "import importlib.metadata as m; print(m.version('litellm'))"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _count_ours(rows: Sequence[Golden], encodings: dict[str, tiktoken.Encoding]) -> list[int]:
    counts = {name: make_counter(encoding) for name, encoding in encodings.items()}
    tokens = []
    for row in rows:
        codec = Codec(counts[find_family(row.model).vocabulary], row.model)
        tokens.append(codec.decode(read_body(orjson.dumps(row.request))).tokens)
    return tokens


def _count_json(row: Golden, encodings: dict[str, tiktoken.Encoding]) -> int:
    return len(encodings[find_family(row.model).vocabulary].encode_ordinary(orjson.dumps(row.request).decode()))


def _read_texts(value: Any) -> Iterable[str]:
    """A message as a client that counts characters sees it: its texts, and the arguments of its calls."""
    if isinstance(value, list):
        for item in value:
            yield from _read_texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in {"content", "text", "name", "arguments"} and isinstance(item, str):
                yield item
            elif key in {"content", "tool_calls", "function", "function_call"}:
                yield from _read_texts(item)


def _count_by_litellm(rows: Sequence[Golden], peers: Path) -> list[int | None]:
    """Count all in one process of LiteLLM's environment. Raises MissingPeerError."""
    python = find_program(peers, "litellm", "python")
    lines = b"".join(orjson.dumps(row.request) + b"\n" for row in rows)
    return [orjson.loads(line) for line in ask_peer(python, "counts", lines=lines, seconds=PEER_SECONDS)]


def describe(group: str, rows: Sequence[Golden], counts: Counts) -> list[str]:
    """A method's row for a group: exact share, mean and p95 of the error, and the largest undercount."""
    pairs = [(row.reported, count) for row, count in zip(rows, counts, strict=True) if row.group == group]
    errors = [(count - reported) / reported for reported, count in pairs if count is not None]
    if not errors:
        return [str(len(pairs)), *["-"] * 4]
    sizes = sorted(map(abs, errors))
    missing = len(pairs) - len(errors)
    return [
        f"{len(errors)}" + (f" ({missing} failed)" if missing else ""),
        f"{mean(error == 0 for error in errors):.1%}",
        f"{mean(sizes):.2%}",
        f"{sizes[int(0.95 * (len(sizes) - 1))]:.1%}",
        f"{min(*errors, 0.0):.1%}",
    ]
