"""Where values stand in a JSON text.

Law: offsets only; nothing is decoded and nothing is rebuilt. Linear in the length of the text, whatever is in it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}]+")
_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]|[\]}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range of bytes."""

    start: int
    stop: int


def find_member(body: bytes, key: bytes, value: bytes) -> Span | None:
    """The span of the last member `key` of the JSON object `body`, where its value is `value`; None otherwise.

    `body` must be valid JSON; `value` is what a decoder found under `key`, so that it need not be scanned again.
    """
    found: Span | None = None
    at = _skip(body, _skip(body, 0) + 1)
    while at < len(body) and body[at] != ord("}"):
        name = _STRING.match(body, at)
        if name is None:
            return None
        at = _skip(body, _skip(body, name.end()) + 1)
        is_value = name.group() == key and body.startswith(value, at)
        stop = at + len(value) if is_value else _value_end(body, at)
        if is_value:
            found = Span(at, stop)
        at = _skip(body, stop)
        if body[at : at + 1] == b",":
            at = _skip(body, at + 1)
    return found


def find_elements(array: bytes, values: Sequence[bytes]) -> list[Span]:
    """The span of each element of a JSON array; `values` are all of its elements as a decoder found them."""
    spans: list[Span] = []
    at = 1
    for value in values:
        start = array.index(value, at)  # only white space and a comma stand before it
        at = start + len(value)
        spans.append(Span(start, at))
    return spans


def _skip(body: bytes, at: int) -> int:
    space = _SPACE.match(body, at)
    return space.end() if space else at


def _value_end(body: bytes, at: int) -> int:
    """Where the value that begins at `at` ends."""
    if body[at] == ord('"'):
        string = _STRING.match(body, at)
        return string.end() if string else len(body)
    if body[at] not in b"[{":
        scalar = _SCALAR.match(body, at)
        return scalar.end() if scalar else len(body)
    depth = 0
    for token in _STRUCTURE.finditer(body, at):
        character = body[token.start()]
        if character in b"[{":
            depth += 1
        elif character in b"]}":
            depth -= 1
            if depth == 0:
                return token.end()
    return len(body)
