"""JSON as text: where the parts of an object or an array stand, without decoding anything.

Law: every value is the client's own text. Linear, whatever the text; what is no JSON raises NotJsonError.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_STRING = r'"(?:[^"\\]++|\\.)*+"'
_TOKEN = re.compile(
    rf'{_STRING}|[\[{{][^{{}}\[\]"]*+(?:{_STRING}[^{{}}\[\]"]*+)*+[\]}}]|[\[\]{{}},:]|"',
    re.DOTALL,
)
"""A string, a container that holds no other, a sign, or a quote that is never closed."""
_BLANKS = re.compile(rf"{_STRING}|([ \t\r]*+\n\s*+)", re.DOTALL)
_DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1, ",": 0, ":": 0, '"': 0}
_OPENS_OR_CLOSES = "[]{}"
_COLON = re.compile(r'"\s*:( ?)')
_COMMA = re.compile(r'["\d}\]el],( ?)')
_WHITE = " \t\r\n"
SAMPLE_CHARS = 4000


class NotJsonError(ValueError):
    """The text is no JSON."""


@dataclass(frozen=True, slots=True)
class Part:
    """A member of an object, or an item of an array; `key` is the text of its key, quotes included, or empty."""

    key: str
    start: int
    stop: int


def split_parts(text: str, start: int, stop: int) -> list[Part]:
    """The parts of the container in text[start:stop]. Raises NotJsonError."""
    parts: list[Part] = []
    is_object = text[start] == "{"
    depth, key, begin = 0, "", start + 1
    for found in _TOKEN.finditer(text, start + 1, stop):
        sign = found[0]
        if len(sign) > 1:
            continue
        depth += _DEPTH[sign]
        if depth < 0 and found.end() == stop:
            _add_part(parts, text, key, begin, found.start())
            return parts
        if depth < 0 or sign == '"':
            raise NotJsonError
        if sign in _OPENS_OR_CLOSES:
            continue
        if depth == 0 and sign == ",":
            _add_part(parts, text, key, begin, found.start())
            key, begin = "", found.end()
        elif depth == 0 and is_object and not key:
            key, begin = text[begin : found.start()].strip(_WHITE), found.end()
    raise NotJsonError


def _add_part(parts: list[Part], text: str, key: str, start: int, stop: int) -> None:
    while start < stop and text[start] in _WHITE:
        start += 1
    while stop > start and text[stop - 1] in _WHITE:
        stop -= 1
    if start < stop:
        parts.append(Part(key, start, stop))


@dataclass(frozen=True, slots=True)
class Signs:
    """What a document writes between a key and its value, and between two values."""

    colon: str
    comma: str

    def member(self, key: str, value: str) -> str:
        """A member; the value alone where there is no key."""
        return f"{key}{self.colon}{value}" if key else value

    def object(self, members: Iterable[str]) -> str:
        """An object of these members."""
        return "{" + self.comma.join(members) + "}"

    def array(self, items: Iterable[str]) -> str:
        """An array of these items."""
        return "[" + self.comma.join(items) + "]"


def read_signs(text: str) -> Signs:
    """How a document is written: with blanks behind its colons and commas, or without."""
    sample = text[:SAMPLE_CHARS]
    colon, comma = _COLON.search(sample), _COMMA.search(sample)
    spaced = "\n" in sample or (comma is not None and comma[1] != "")
    return Signs(": " if colon and colon[1] else ":", ", " if spaced else ",")


def unbreak(text: str) -> str:
    """JSON without its line breaks and indentation; blanks within a line stay as they are."""
    if "\n" not in text:
        return text
    return _BLANKS.sub(lambda found: "" if found[1] is not None else found[0], text)
