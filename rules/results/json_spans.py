"""Positions of the parts of a JSON object or array in its text. Nothing is decoded.

Law: every value is the client's own text. Linear time for any text. NotJsonError is raised if the text's brackets and
strings show that it is not JSON; other errors in it are not found.
"""

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from trimtab.rules.text.late import compile_late

_STRING = r'"(?:[^"\\]{1,1024}+|\\.){0,128}+"'
"""A string, unless it is very long: matching that in one call would hold the interpreter."""
_TOKEN = compile_late(
    rf'{_STRING}|[\[{{][^{{}}\[\]"]{{0,512}}+(?:{_STRING}[^{{}}\[\]"]{{0,512}}+){{0,64}}+[\]}}]|'
    r'[\[{]{4,1024}+|[\]}]{4,1024}+|[\[\]{},:]|"',
    re.DOTALL,
)
"""A string, a small container that holds no other, a run of brackets, a sign, or the quote that opens a very long
string."""
_BLANKS = compile_late(r'"(?:[^"\\]++|\\.)*+"?|(?<![ \t\r])([ \t\r]*+\n\s*+)', re.DOTALL)
"""A string, or a line break with the white space around it. A string without an end matches too, so that no text is
searched twice."""
_PIECE = compile_late(
    r"(?:[^\\]{1,1024}+|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?+|\\(?:u[0-9a-fA-F]{4}|.)){1,256}+",
    re.DOTALL,
)
"""A part of a string that ends neither within an escape nor between the two escapes of a surrogate pair."""
_DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1, ",": 0, ":": 0, '"': 0}
_OPENS, _CLOSES = "[{", "]}"
_COLON = compile_late(r'"\s*:( ?)')
_COMMA = compile_late(r'["\d}\]el],( ?)')
_WHITE = " \t\r\n"
SAMPLE_CHARS = 4000  # chosen: enough of a document to show how it separates its values
MIN_WINDOW = 32  # Parts. A smaller window is not thinned out. Chosen: it has too few parts to compare.


class NotJsonError(ValueError):
    """The text is not JSON."""


class Part(msgspec.Struct, frozen=True):
    """A value text[start:stop] of an object or array. key: the text of its key with quotes; empty for an item."""

    key: str
    start: int
    stop: int


class Thinning(msgspec.Struct, frozen=True):
    """Which parts of a container with very many parts are kept.

    head, tail: parts that are kept at both ends.
    parts, chars: those between are read in windows of this many parts, or of fewer parts with this many characters.
    choose: returns the indexes of a window's parts to keep. Not called, so that none is kept, once one of the parts was
        not a container.
    """

    head: int
    tail: int
    parts: int
    chars: int
    choose: Callable[[Sequence[Part]], Iterable[int]] = lambda _: ()


def split_parts(text: str, start: int, stop: int, thinning: Thinning | None = None) -> "Parts":
    """Find the parts of the container in text[start:stop]. Raises NotJsonError."""
    parts = Parts(text, is_object=text[start] == "{", thinning=thinning)
    depth, begin = 0, start + 1
    for found in _read_tokens(text, start + 1, stop):
        sign = found[0]
        if len(sign) > 1 and (sign[0] == '"' or (sign[-1] in _CLOSES and sign[0] in _OPENS)):
            continue
        depth += _DEPTH[sign[0]] * len(sign)
        if depth < 0:
            if depth < -1 or found.end() != stop:
                raise NotJsonError
            parts.add(begin, stop - 1)
            return parts
        if depth == 0 and sign in ",:":
            begin = parts.take_sign(sign, begin, found)
    raise NotJsonError


class Parts:
    """The parts of one container, in order; after thinning, those that are kept.

    Positions are kept in arrays of numbers, which the garbage collector does not have to visit.

    total: how many parts the container has.
    """

    def __init__(self, text: str, *, is_object: bool, thinning: Thinning | None = None) -> None:
        self.total = 0
        self._thinning = thinning
        self._settled = -1  # how many of the first parts are final; -1 if none was dropped yet
        self._has_plain = False
        self._keys: list[str] = []
        self._starts = array("q")
        self._stops = array("q")
        self._text = text
        self._is_object = is_object
        self._key = ""

    def take_sign(self, sign: str, begin: int, found: re.Match[str]) -> int:
        """Take a comma or a colon of the container itself; return the position where the next value begins."""
        if sign == ",":
            self.add(begin, found.start())
        elif self._is_object and not self._key:
            self._key = self._text[begin : found.start()].strip(_WHITE)
        else:
            return begin
        return found.end()

    def add(self, start: int, stop: int) -> None:
        """Add the value in text[start:stop] without the white space around it, unless it is only white space."""
        text = self._text
        while start < stop and text[start] in _WHITE:
            start += 1
        while stop > start and text[stop - 1] in _WHITE:
            stop -= 1
        if start < stop:
            self._keys.append(self._key)
            self._starts.append(start)
            self._stops.append(stop)
            self._key = ""
            self.total += 1
            if self._thinning is not None:
                self._thin(self._thinning, stop)

    def _thin(self, thinning: Thinning, stop: int) -> None:
        first = max(self._settled, thinning.head)
        last = len(self._starts) - thinning.tail
        is_full = last - first >= thinning.parts or (
            last - first >= MIN_WINDOW and stop - self._starts[first] >= thinning.chars
        )
        if not is_full:
            return
        self._has_plain = self._has_plain or any(self._text[start] not in _OPENS for start in self._starts[first:last])
        window = [self[index] for index in range(first, last)] if not self._has_plain else []
        chosen = [first + index for index in sorted(set(thinning.choose(window)))] if window else []
        self._keys[first:last] = [self._keys[index] for index in chosen]
        self._starts[first:last] = array("q", [self._starts[index] for index in chosen])
        self._stops[first:last] = array("q", [self._stops[index] for index in chosen])
        self._settled = first + len(chosen)

    @property
    def head(self) -> int:
        """How many parts from the first one on are all kept."""
        return len(self) if self._settled < 0 or self._thinning is None else self._thinning.head

    @property
    def tail(self) -> int:
        """How many parts before the end are all kept."""
        return len(self) if self._settled < 0 else len(self) - self._settled

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Part:
        return Part(self._keys[index], self._starts[index], self._stops[index])

    def __iter__(self) -> Iterator[Part]:
        return map(Part, self._keys, self._starts, self._stops)

    def are_containers(self) -> bool:
        return not self._has_plain and all(self._text[start] in _OPENS for start in self._starts)


def _read_tokens(text: str, start: int, stop: int) -> Iterator[re.Match[str]]:
    """The tokens; very long strings are skipped. Raises NotJsonError if a string has no end."""
    while start < stop:
        for found in _TOKEN.finditer(text, start, stop):
            if found[0] == '"':
                start = _close_string(text, found.end(), stop)
                break
            yield found
        else:
            return


def _close_string(text: str, start: int, stop: int) -> int:
    """The end of a string, after its closing quote. Its text begins at `start`."""
    at = text.find('"', start, stop)
    while at >= 0:
        slashes = 0
        while at - slashes > start and text[at - slashes - 1] == "\\":
            slashes += 1
        if slashes % 2 == 0:
            return at + 1
        at = text.find('"', at + 1, stop)
    raise NotJsonError


def split_string(raw: str) -> Iterator[str]:
    """Split a JSON string into shorter ones that have its text together: decoding a long one holds the interpreter."""
    return (f'"{found[0]}"' for found in _PIECE.finditer(raw, 1, len(raw) - 1))


class Signs(msgspec.Struct, frozen=True):
    """What a document writes between a key and its value (`colon`), and between two values (`comma`)."""

    colon: str
    comma: str

    def member(self, key: str, value: str) -> str:
        """A member of an object; with an empty key, the value alone."""
        return f"{key}{self.colon}{value}" if key else value

    def object(self, members: Iterable[str]) -> str:
        return "{" + self.comma.join(members) + "}"

    def array(self, items: Iterable[str]) -> str:
        return "[" + self.comma.join(items) + "]"


def read_signs(text: str) -> Signs:
    sample = text[:SAMPLE_CHARS]
    colon, comma = _COLON.search(sample), _COMMA.search(sample)
    spaced = "\n" in sample or (comma is not None and comma[1] != "")
    return Signs(": " if colon and colon[1] else ":", ", " if spaced else ",")


def unbreak(text: str) -> str:
    """JSON without its line breaks and indentation. Blanks within a line stay."""
    if "\n" not in text:
        return text
    return _BLANKS.sub(lambda found: "" if found[1] is not None else found[0], text)
