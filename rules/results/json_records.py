"""Positions of the parts of a JSON object or array in its text, and records, each shortened to its share.

Law: nothing that is kept is decoded; every value is the client's own text. Linear time for any text. NotJsonError is
raised if the text's brackets and strings show that it is not JSON; other errors in it are not found. Of a record the
values with most information are kept; members keep their order and their text. Values that all records share are left
out of all but the first record.
"""

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter

import msgspec

from trimtab.rules.text.head_tail import floor_boundary
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import mark_characters, mark_items

_STRING = r'"(?:[^"\\]{1,1024}+|\\.|){0,128}+"'
"""A string, unless it is very long: matching that in one call would hold the interpreter."""
_TOKEN = compile_late(
    rf'{_STRING}|[\[{{][^{{}}\[\]"]{{0,512}}+(?:{_STRING}[^{{}}\[\]"]{{0,512}}+|){{0,64}}+[\]}}]|'
    r'[\[{]{4,1024}+|[\]}]{4,1024}+|[\[\]{},:]|"',
    re.DOTALL,
)
"""A string, a small container that holds no other, a run of brackets, a sign, or the quote that opens a very long
string."""
_BLANKS = compile_late(r'"(?:[^"\\]++|\\.|)*+"?|(?<![ \t\r])([ \t\r]*+\n\s*+)', re.DOTALL)
"""A string, or a line break with the white space around it. A string without an end matches too, so that no text is
searched twice."""
_PIECE = compile_late(
    r"(?=[^\\]|\\.)"
    r"(?:[^\\]{1,1024}+|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    r"|\\(?:u[0-9a-fA-F]{4}|.)|){0,256}+",
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


class News(msgspec.Struct):
    """The records that stand out, strongest first: `order`. info: what each column carries, by path; mostly 1."""

    order: list[int] = msgspec.field(default_factory=list)
    info: dict[str, float] = msgspec.field(default_factory=dict)


# The weights are chosen. `python -m bench.retention.run --only facts` measures what the excerpts keep.
MAX_KEY_CHARS = 80  # Longest part of a key in the path of its column
SAYS_FACTOR, NAME_FACTOR = 2.0, 2.0
"""Factors on the weight of a string of several words, and of a record's first string, which often is its name."""
DEPTH_FACTOR = 0.8  # of a value's weight, for each level of nesting
ARRAY_FACTOR, RANK_DECAY = 0.2, 0.6
"""Factor on the weight of an item of an array of plain values; and the exponent of an item's rank in any array."""
MAX_PLAIN_ITEMS, MAX_ITEMS = 3, 12  # Items of an array that may be kept: of plain values, and at all
LONG_STRING_TOKENS = 60  # A longer string is cut to this length, about
UNFIT_FACTOR = 4  # A container with more than so many times `most_leaves` tokens is never kept whole
BASE_TOKENS = 8.0  # Added before a weight is divided by tokens, so that short values are not preferred
MARKER_CHARS = 45  # About the length of the marker at the end of a cut string
_ESCAPE_CUT = compile_late(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
"""The end of a cut string that is an incomplete escape, or the first half of a surrogate pair."""
MAX_LEVELS = 4
"""Levels of a record that are read. Chosen: each level reads its text again, and reading deeper hardly changed which
facts are kept (`bench.retention.run`)."""


class _Node(msgspec.Struct):
    """A value of the record: a leaf with its text, or a container with the parts that may be kept."""

    key: str
    parent: "_Node | None"
    tokens: float  # without the parts
    text: str = ""
    opening: str = ""  # the bracket of a container; empty for a leaf
    total: int = 0  # of all parts
    level: int = 0
    parts: "list[_Node]" = msgspec.field(default_factory=list)
    weight: float = 0.0


class Document(msgspec.Struct, frozen=True):
    """The document of the records. rate: tokens a character. most_leaves: weighed of a record; None for all."""

    text: str
    rate: float
    signs: Signs
    most_leaves: int | None = None


class Record:
    def __init__(self, document: Document, part: Part, number: int, news: News) -> None:
        self._document, self._part, self._news = document, part, news
        self._rate, self._most = document.rate, document.most_leaves
        self._is_first, self._is_named = number == 0, False
        self._thinning = None if self._most is None else Thinning(self._most, 0, self._most, len(document.text))
        self._leaves: list[_Node] = []
        self._root = self._read(Part("", part.start, part.stop), None, "", 0, 1.0)
        self._leaves = sorted((one for one in self._leaves if one.weight > 0), key=attrgetter("weight"), reverse=True)

    def write(self, tokens: float) -> str:
        """The record in about this many tokens. The first one of a collection stays whole if it fits."""
        if self._is_first and (self._part.stop - self._part.start) * self._rate < 20 * tokens:
            whole = unbreak(self._document.text[self._part.start : self._part.stop])
            if len(whole) * self._rate <= tokens:
                return whole
        kept: set[int] = set()
        for leaf in self._leaves:
            added, needed = list[int](), 0.0
            node: _Node | None = leaf
            while node is not None and id(node) not in kept:  # the leaf, and the containers around it
                added.append(id(node))
                needed += node.tokens
                node = node.parent
            if needed <= tokens:
                tokens -= needed
                kept.update(added)
        return _write(self._root, kept, self._document.signs)

    def _read(self, part: Part, parent: _Node | None, path: str, depth: int, weight: float) -> _Node:
        text = self._document.text
        opening = text[part.start]
        key_tokens = (len(part.key) + 3) * self._rate if part.key else 0.7
        level = parent.level + 1 if parent else 0
        is_read = opening in "[{" and level < MAX_LEVELS and (self._most is None or len(self._leaves) < self._most)
        parts = split_parts(text, part.start, part.stop, self._thinning) if is_read else None
        if not parts:
            return self._read_leaf(part, parent, path, weight * DEPTH_FACTOR**depth, key_tokens)
        node = _Node(part.key, parent, key_tokens + 1.5, opening=opening, total=parts.total, level=level)
        if opening == "[":
            self._read_items(node, parts, path, depth, weight)
            return node
        for inner in map(parts.__getitem__, range(parts.head)):
            name = f"{path}.{inner.key[1:-1][:MAX_KEY_CHARS]}"
            node.parts.append(self._read(inner, node, name, depth + (text[inner.start] in "[{"), weight))
        return node

    def _read_items(self, node: _Node, parts: Parts, path: str, depth: int, weight: float) -> None:
        for rank in range(min(len(parts), MAX_ITEMS)):
            inner = parts[rank]
            is_plain = self._document.text[inner.start] not in "[{"
            if is_plain and rank >= MAX_PLAIN_ITEMS and parts.total > MAX_PLAIN_ITEMS + 2:
                break
            share = weight * (ARRAY_FACTOR if is_plain else 1.0) * (1 + rank) ** -RANK_DECAY
            node.parts.append(self._read(inner, node, f"{path}[]", depth, share))

    def _read_leaf(self, part: Part, parent: _Node | None, path: str, weight: float, key_tokens: float) -> _Node:
        text, tokens = self._document.text, (part.stop - part.start) * self._rate
        if self._most is not None and tokens > UNFIT_FACTOR * self._most and text[part.start] in "[{":
            return _Node(part.key, parent, tokens + key_tokens)  # without weight, so it is never kept
        raw = text[part.start : part.stop]
        if raw[0] == '"' and len(raw) * self._rate > LONG_STRING_TOKENS:
            raw = cut_string(raw, int(LONG_STRING_TOKENS / self._rate))
        elif raw[0] in "[{":
            raw = unbreak(raw)
        info = self._news.info.get(path, 1.0)
        info = max(info, 0.3) if self._is_first else (info if info > 0.1 else 0.0)
        if raw[0] == '"':
            info *= (SAYS_FACTOR if " " in raw else 1.0) * (1.0 if self._is_named else NAME_FACTOR)
            self._is_named = True
        leaf = _Node(part.key, parent, len(raw) * self._rate + key_tokens, text=raw)
        leaf.weight = info * weight / (BASE_TOKENS + leaf.tokens)
        self._leaves.append(leaf)
        return leaf


def _write(node: _Node, kept: AbstractSet[int], signs: Signs) -> str:
    if not node.opening:
        return node.text
    written = [signs.member(part.key, _write(part, kept, signs)) for part in node.parts if id(part) in kept]
    if node.opening == "{":
        return signs.object(written)
    if len(written) < node.total:
        written.append(f'"{mark_items(node.total - len(written), node.total)}"')
    return signs.array(written)


def cut_string(raw: str, max_chars: int) -> str:
    """A JSON string with its quotes, cut to about `max_chars`; never cut within an escape or a character."""
    kept = max(12, max_chars - MARKER_CHARS)
    if len(raw) <= kept + MARKER_CHARS:
        return raw
    head = raw[1 : floor_boundary(raw, 1 + kept, 2)]
    head = _ESCAPE_CUT.sub("", head, count=1)
    if (len(head) - len(head.rstrip("\\"))) % 2:
        head = head[:-1]
    return f'"{head} {mark_characters(len(raw) - 2 - len(head))}"'
