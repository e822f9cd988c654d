"""The memory that one body can cost is a small multiple of its size, whatever its content.

Law: `tracemalloc` measures it on pure functions. It counts Python's own allocations, so the result is the same in every
run.
"""

import tracemalloc
from collections.abc import Callable

import msgspec
import orjson
import pytest
from support.builders import call, count_words

from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.message import decode_message
from trimtab.proxy.wire.json import mend
from trimtab.rules.policy import Tidying
from trimtab.rules.results import json_document, kinds
from trimtab.rules.results.excerpt import Facts, excerpt_text
from trimtab.rules.results.json_document import excerpt_json
from trimtab.rules.results.tidy import tidy_text
from trimtab.rules.tokens.families import GENERIC

CHARS = 400_000
JSON_CHARS = 150_000
WINDOW_BYTES = 5_000_000
"""Extra memory for one window and the kept units, which do not grow with the text."""
SMALL_BYTES = 2_500_000


def _lines(make: Callable[[int], str], end: str = "\n", chars: int = CHARS) -> str:
    number = chars // (len(make(1000)) + len(end))
    return end.join(map(make, range(number)))


KINDS: dict[str, Callable[[], str]] = {
    "one letter a line": lambda: _lines(lambda number: "abcdefgh"[number * number % 8]),
    "log": lambda: _lines(lambda number: f"2026-01-01 12:00:00 worker {number % 7} INFO took {number} ms"),
    "errors only": lambda: _lines(lambda number: f"error: E{number}"),
    "search": lambda: _lines(lambda number: f"src/{number}.py:{number}: import a"),
    "diff": lambda: "diff --git a/x b/x\n" + _lines(lambda number: f"@@ -{number} +{number} @@\n-a{number}\n+b"),
    "tracebacks": lambda: _lines(lambda _: "Traceback (most recent call last)\n  a\nb"),
    "table": lambda: _lines(lambda number: f"{number},{number % 97},x"),
    "JSON lines": lambda: _lines(lambda number: f'{{"t":{number},"level":"info"}}'),
    "carriage returns": lambda: _lines(lambda number: f"{number % 100}% ab", "\r"),
    "colours": lambda: _lines(lambda _: "\x1b[31ma\x1b[0m"),
    "one line": lambda: "ab cd," * (CHARS // 6),
}
"""Texts that are read as lines."""
JSON_KINDS: dict[str, Callable[[], str]] = {
    "array of numbers": lambda: "[" + ",".join(["1"] * (JSON_CHARS // 2)) + "]",
    "records": lambda: "[" + _lines(lambda number: f'{{"a":{number}}}', ",", JSON_CHARS) + "]",
    "records of other keys": lambda: "[" + _lines(lambda number: f'{{"k{number}":1}}', ",", JSON_CHARS) + "]",
    "one wide record": lambda: "[{},{},{},{},{" + _lines(lambda number: f'"k{number}":1', ",", JSON_CHARS) + "}]",
    "many members": lambda: "{" + _lines(lambda number: f'"k{number}":{number}', ",", JSON_CHARS) + "}",
    "lines within JSON": lambda: (
        '{"out":"' + _lines(lambda number: f"{number % 10}", "\\n", JSON_CHARS) + '","code":1}'
    ),
}


def _peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_is_shortened_in_memory_that_does_not_grow_with_its_lines(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds are small here. Without them, half of the lines alone once took twenty times the text."""
    monkeypatch.setattr(kinds, "LARGE_CHARS", CHARS // 4)
    monkeypatch.setattr(kinds, "LARGE_LINES", 2000)
    text = KINDS[kind]()
    asked = Facts(call("1", "grep", '{"pattern": "wanted"}'), count_by_heuristic)
    short: list[str | None] = []
    peak = _peak_bytes(lambda: short.append(excerpt_text(text, 2000, count_by_heuristic, asked)))
    assert short[0] is None or count_by_heuristic(short[0]) <= 2000
    assert peak <= 3 * len(text.encode()) + WINDOW_BYTES


@pytest.mark.parametrize("kind", JSON_KINDS)
def test_a_document_is_shortened_in_memory_that_does_not_grow_with_its_parts(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds are small here. Once each part kept two numbers and a key, and each record its decoded values."""
    monkeypatch.setattr(json_document, "LARGE_DOCUMENT_CHARS", JSON_CHARS // 4)
    monkeypatch.setattr(json_document, "WINDOW_CHARS", 8 * 1024)
    monkeypatch.setattr(json_document, "WINDOW_PARTS", 512)
    text = JSON_KINDS[kind]()
    short: list[str | None] = []
    peak = _peak_bytes(lambda: short.append(excerpt_json(text, 500, count_by_heuristic)))
    assert short[0] is not None
    assert count_by_heuristic(short[0]) <= 500
    assert orjson.loads(short[0])
    assert peak <= 3 * len(text) + 500_000


@pytest.mark.parametrize("kind", ["carriage returns", "colours", "one letter a line", "one line"])
def test_tidying_takes_no_more_than_two_copies(kind: str) -> None:
    """One copy is the pieces, and one is the new text."""
    text = KINDS[kind]()
    tidying = Tidying(ansi=True, progress=True, json=True, tables=True)
    peak = _peak_bytes(lambda: tidy_text(text, tidying, is_file=lambda: False, fits=lambda _: True))
    assert peak <= 3 * len(text.encode()) + SMALL_BYTES


@pytest.mark.parametrize("part", [b"\\ud800", b"\xed\xa0\x80", b'"},NaN,{"a":"', b"Infinity "])
def test_a_damaged_body_is_mended_in_two_copies(part: bytes) -> None:
    """The number of repairs does not matter. Once each lone surrogate became an object."""
    text = b'{"x":NaN,"y":["' + part * (CHARS // len(part)) + b'"]}'
    assert _peak_bytes(lambda: mend(text)) <= 3.2 * len(text) + SMALL_BYTES


@pytest.mark.parametrize("text", ["\x1b" * CHARS, "é\n" * CHARS])
def test_a_message_is_decoded_in_few_copies(text: str) -> None:
    """The copies are its text, the decoder's buffer, and the encoding for its digest."""
    raw = msgspec.json.encode({"role": "tool", "tool_call_id": "1", "content": text})
    peak = _peak_bytes(lambda: decode_message(raw, count_words, GENERIC.costs))
    assert peak <= 4 * len(raw) + SMALL_BYTES
