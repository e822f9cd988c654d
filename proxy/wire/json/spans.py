"""Where values stand in a JSON text.

Law: offsets only; nothing is decoded and nothing is rebuilt. Linear in the length of the text, whatever is in it.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from proxy.wire.json.strides import STRIDE_BYTES, STRING, close_string, count_bytes, find_tokens

_SPACE = re.compile(rb"[ \t\n\r]{0,%d}+" % STRIDE_BYTES)
_SEPARATOR = re.compile(rb"[, \t\n\r]{0,%d}+" % STRIDE_BYTES)
_SCALAR = re.compile(rb"[^\s,\]}]{1,%d}+" % STRIDE_BYTES)
_PART = re.compile(STRING + rb'|"|,', re.DOTALL)
_BRACKETS = frozenset({b"{", b"["})
_STRUCTURE = re.compile(STRING + rb'|"|[\[{]|[\]}]', re.DOTALL)


class Span(NamedTuple):
    """Half-open range of bytes. A tuple: hundreds are made for a request."""

    start: int
    stop: int


class Array(NamedTuple):
    """A JSON array and its elements, by their place in the text."""

    start: int
    stop: int
    elements: list[Span]


def find_array(body: bytes, key: bytes, elements: Sequence[bytes], others: Iterable[bytes] = ()) -> Array | None:
    """The last member `key` of the JSON object `body` whose value is an array of `elements`; None if there is none.

    `body` must be valid JSON, behind a byte order mark perhaps; `elements` are what a decoder found under `key`, and
    `others` under other keys, so that they need not be scanned.
    """
    skipped = [other for other in others if other[:1] in _BRACKETS]
    found: Array | None = None
    at = _skip(body, body.index(b"{") + 1)
    while at < len(body) and body[at] != ord("}"):
        if body[at] != ord('"'):
            return None
        name, at = at, close_string(body, at + 1)
        is_key = at - name == len(key) and body.startswith(key, name)
        at = _skip(body, _skip(body, at) + 1)
        array = match_array(body, at, elements) if is_key else None
        found = array or found
        if array is None:
            known = next((other for other in skipped if body.startswith(other, at)), None)
            at = _value_end(body, at) if known is None else at + len(known)
        at = _skip(body, array.stop if array else at)
        if body[at : at + 1] == b",":
            at = _skip(body, at + 1)
    return found


def count_parts(text: bytes) -> int:
    """How many strings and commas between values a piece of JSON has at most."""
    return count_bytes(text, b",") + count_bytes(text, b'"') // 2


def has_more_parts(body: bytes, most: int) -> bool:
    """Whether a JSON text has more than `most` strings and commas between values; those within strings do not count.

    It looks no further than that, and lets go of the interpreter on the way.
    """
    if count_parts(body) <= most:
        return False
    return sum(1 for _ in islice(find_tokens(_PART, body), most + 1)) > most


def match_array(body: bytes, start: int, elements: Sequence[bytes]) -> Array | None:
    """The array that begins at `start`, if it is one and holds these elements and no others."""
    if body[start : start + 1] != b"[":
        return None
    spans: list[Span] = []
    at = start + 1
    for number, element in enumerate(elements):
        at += 1 if number else 0  # the usual case: a comma and nothing else
        if not body.startswith(element, at):
            at = _skip(body, at - 1 if number else at, _SEPARATOR)
            if not body.startswith(element, at):
                return None
        spans.append(Span(at, at + len(element)))
        at += len(element)
    at = _skip(body, at)
    return Array(start, at + 1, spans) if body[at : at + 1] == b"]" else None


def _skip(body: bytes, at: int, what: re.Pattern[bytes] = _SPACE) -> int:
    while (run := what.match(body, at)) is not None and run.end() > at:
        at = run.end()
        if at - run.start() < STRIDE_BYTES:
            break
    return at


def _value_end(body: bytes, at: int) -> int:
    """Where the value that begins at `at` ends."""
    if body[at] == ord('"'):
        return close_string(body, at + 1)
    if body[at] not in b"[{":
        stop = _skip(body, at, _SCALAR)
        return stop if stop > at else len(body)
    depth = 0
    for token in find_tokens(_STRUCTURE, body, at):
        character = body[token.start()]
        if character in b"[{":
            depth += 1
        elif character in b"]}":
            depth -= 1
            if depth == 0:
                return token.end()
    return len(body)
