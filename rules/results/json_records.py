"""The records of a collection: which of them stand out, and each shortened to its share of the budget.

Law: a function of the records. Records stand out among many similar ones by extreme numbers, rare values or rare keys.
A value that all records share carries no information, and a column in which every value is rare carries little. Of a
record the values with most information are kept; members keep their order and their text. Values that all records share
are left out of all but the first record.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import pairwise
from math import log
from typing import Any

import msgspec

from trimtab.rules.results.json_spans import Part, Parts, Signs, Thinning, split_parts, unbreak
from trimtab.rules.text.head_tail import floor_boundary
from trimtab.rules.text.markers import mark_characters, mark_items

# The weights are chosen. `python -m bench.retention.run --only facts` measures what the excerpts keep.
MAX_DEPTH = 5  # levels of a record that are read
MAX_NEWS_ITEMS = 40  # Items of an array within a record that are read
MAX_VALUES = 256  # The rarest values of a column that are weighed
MAX_KEY_CHARS = 80  # Longest part of a key in the path of its column
NEWS_DEPTH_FACTOR = 0.85  # of a column's weight, for each level of nesting
LARGEST_WEIGHT, SMALLEST_WEIGHT = 1.0, 0.9
"""Weights of the record with the largest number of a column, and of the one with the smallest."""
MAX_NUMBER = 10**300  # A larger integer is not read as a number: the largest float is about 1.8e308
RARE_SHARE = 0.2  # A value or a key that a larger share of the records has is common
EXTRA_KEY_SHARE = 0.9
"""Weight of a record with a rare key. Also: if this share of the records has a key, all of them count as having it."""
CONSTANT_INFO, ONLY_VALUE_INFO, FEW_VALUES_INFO = 0.05, 0.6, 1.3
"""Information in a column with one value in all records, with one value in some of them, and with few values."""
_PLACE_NAMES = re.compile(
    r"(?:^|[._\]]|end_?|start_?|begin_?)(?:id|line|row|column|col|offset|index|lat|lon|lng|timestamp|time|port|pid)s?$|Id$",
    re.IGNORECASE,
)
"""Columns of positions and identifiers: their extreme numbers do not make a record stand out."""

Values = Mapping[str, Sequence[int]]
"""The distinct values of a column, each with the numbers of the records that have it."""


class Column(msgspec.Struct):
    """The values at one path, in the records' order. numbers: the record of each; it may have several, or none."""

    numbers: list[int] = msgspec.field(default_factory=list)
    values: list[Any] = msgspec.field(default_factory=list)

    def add(self, number: int, value: Any) -> None:
        self.numbers.append(number)
        self.values.append(value)

    def group_values(self) -> Values:
        """The records of each distinct value; the keys are the values as text."""
        values: dict[str, list[int]] = {}
        for number, value in zip(self.numbers, self.values, strict=True):
            values.setdefault(str(value), []).append(number)
        return values

    def count_records(self) -> int:
        return sum(before != after for before, after in pairwise((-1, *self.numbers)))

    def total(self) -> Mapping[int, float]:
        """The sum of the numbers of each record; empty if any value of the column is not a number."""
        totals: dict[int, float] = {}
        for number, value in zip(self.numbers, self.values, strict=True):
            amount = _to_number(value)
            if amount is None:
                return {}
            totals[number] = totals.get(number, 0.0) + amount
        return totals


class News(msgspec.Struct):
    """The records that stand out, strongest first: `order`. info: what each column carries, by path; mostly 1."""

    order: list[int] = msgspec.field(default_factory=list)
    info: dict[str, float] = msgspec.field(default_factory=dict)


def read_news(records: Iterable[Any], total: int) -> News:
    columns: dict[str, Column] = defaultdict(Column)
    for number, record in enumerate(records):
        _collect(record, "", (number, columns), 0)
    news = News()
    items: list[tuple[float, int]] = []
    for path, column in columns.items():
        values = column.group_values()
        news.info[path] = _info(len(values), column.count_records(), total)
        nested = NEWS_DEPTH_FACTOR ** (path.count(".") - 1 + path.count("[]"))
        items += [(-weight * nested, number) for weight, number in _read_column(path, column, values, total)]
    news.order = list(dict.fromkeys(number for _, number in sorted(items)))
    return news


def _collect(value: Any, path: str, into: tuple[int, dict[str, Column]], depth: int) -> None:
    """Add a record's scalars and array lengths to its columns. `into`: the record's number, and the columns."""
    number, columns = into
    if isinstance(value, dict):
        if depth < MAX_DEPTH:
            for key, part in value.items():
                _collect(part, f"{path}.{key[:MAX_KEY_CHARS]}", into, depth + 1)
    elif isinstance(value, list):
        columns[f"{path}#"].add(number, len(value))
        if depth < MAX_DEPTH:
            for part in value[:MAX_NEWS_ITEMS]:
                _collect(part, f"{path}[]", into, depth + 1)
    else:
        columns[path].add(number, value)


def _info(values: int, holders: int, records: int) -> float:
    """The information in a column with this many distinct values, in `holders` of all records."""
    if values <= 1:
        return CONSTANT_INFO if holders >= EXTRA_KEY_SHARE * records else ONLY_VALUE_INFO
    return FEW_VALUES_INFO if values <= max(3, records // 3) else 1.0


def _read_column(path: str, column: Column, values: Values, records: int) -> Iterator[tuple[float, int]]:
    if path.endswith("#") and len(values) <= 1:
        return
    totals = column.total()
    if totals:
        yield from _read_extremes(path, totals)
    having = column.count_records()
    if len(values) <= max(3, having // 3):
        yield from _read_rare(values)
    if having <= RARE_SHARE * records:
        yield EXTRA_KEY_SHARE * _rarity(having, records), column.numbers[0]


def _to_number(value: Any) -> float | None:
    is_number = type(value) is float or (type(value) is int and abs(value) < MAX_NUMBER)
    return float(value) if is_number else None


def _read_extremes(path: str, totals: Mapping[int, float]) -> Iterator[tuple[float, int]]:
    if len(set(totals.values())) <= 2:
        return
    rising = sum(before <= after for before, after in pairwise(totals.values())) / (len(totals) - 1)
    largest, smallest = max(totals, key=totals.__getitem__), min(totals, key=totals.__getitem__)
    extremes = ((LARGEST_WEIGHT, largest), (SMALLEST_WEIGHT, smallest))
    if 0.05 < rising < 0.95:  # not a sequence
        if not _is_place(path):
            yield from extremes
    elif rising not in {0.0, 1.0}:  # nearly a sequence: a record that breaks it stands out
        ends = {next(iter(totals)), next(reversed(totals))}
        yield from ((weight, number) for weight, number in extremes if number not in ends)


def _is_place(path: str) -> bool:
    """Whether the numbers of a column are positions or identifiers."""
    return _PLACE_NAMES.search(path.removesuffix("[]")) is not None


def _read_rare(values: Values) -> Iterator[tuple[float, int]]:
    total = sum(map(len, values.values()))
    # The more values are rare, the less each of them says.
    rare = sum(len(numbers) <= RARE_SHARE * total for numbers in values.values())
    for numbers in nsmallest(MAX_VALUES, values.values(), key=len):
        if len(numbers) > RARE_SHARE * total:
            break
        weight = _rarity(len(numbers), total) / rare**0.5
        yield weight, numbers[0]
        if numbers[-1] != numbers[0]:
            yield weight / 2, numbers[-1]


def _rarity(holders: int, records: int) -> float:
    """A number from 1, if only one record has it, down to about 0, if all have it."""
    return log((records + 1) / holders) / log(records + 1)


# The weights are chosen. `python -m bench.retention.run --only facts` measures what the excerpts keep.
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
_ESCAPE_CUT = re.compile(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
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
    is_kept: bool = False


class Document(msgspec.Struct, frozen=True):
    """The document of the records. rate: tokens a character. most_leaves: weighed of a record; None for all."""

    text: str
    rate: float
    signs: Signs
    most_leaves: int | None = None


class Record:
    """One record of a collection: read once, then written in any size."""

    def __init__(self, document: Document, part: Part, number: int, news: News) -> None:
        self._document = document
        self._part = part
        self._is_first = number == 0
        reader = _Reader(document, number, news)
        self._root = reader.read(Part("", part.start, part.stop), None, "", 0, 1.0)
        self._leaves = sorted(
            (leaf for leaf in reader.leaves if leaf.weight > 0), key=lambda leaf: leaf.weight, reverse=True
        )

    def write(self, tokens: float) -> str:
        """The record in about this many tokens. The first one of a collection stays whole if it fits."""
        rate = self._document.rate
        if self._is_first and (self._part.stop - self._part.start) * rate < 20 * tokens:
            whole = unbreak(self._document.text[self._part.start : self._part.stop])
            if len(whole) * rate <= tokens:
                return whole
        _forget(self._root)
        left = tokens
        for leaf in self._leaves:
            needed = _needed(leaf)
            if needed <= left:
                left -= needed
                _keep(leaf)
        return _write(self._root, self._document.signs)


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


class _Reader:
    """Reads a record into nodes, and weighs its leaves."""

    def __init__(self, document: Document, number: int, news: News) -> None:
        self._text = document.text
        self._news = news
        self._rate = document.rate
        self._is_first = number == 0
        self._most = document.most_leaves
        self._thinning = None if self._most is None else Thinning(self._most, 0, self._most, len(document.text))
        self._named = False
        self.leaves: list[_Node] = []

    def read(self, part: Part, parent: _Node | None, path: str, depth: int, weight: float) -> _Node:
        opening = self._text[part.start]
        key_tokens = (len(part.key) + 3) * self._rate if part.key else 0.7
        level = parent.level + 1 if parent else 0
        is_read = opening in "[{" and level < MAX_LEVELS and (self._most is None or len(self.leaves) < self._most)
        parts = split_parts(self._text, part.start, part.stop, self._thinning) if is_read else None
        if not parts:
            return self._read_leaf(part, parent, path, weight * DEPTH_FACTOR**depth, key_tokens)
        node = _Node(part.key, parent, key_tokens + 1.5, opening=opening, total=parts.total, level=level)
        if opening == "[":
            self._read_items(node, parts, path, depth, weight)
            return node
        for inner in map(parts.__getitem__, range(parts.head)):
            name = f"{path}.{inner.key[1:-1][:MAX_KEY_CHARS]}"
            is_plain = self._text[inner.start] not in "[{"
            node.parts.append(self.read(inner, node, name, depth + (not is_plain), weight))
        return node

    def _read_items(self, node: _Node, parts: Parts, path: str, depth: int, weight: float) -> None:
        for rank in range(min(len(parts), MAX_ITEMS)):
            inner = parts[rank]
            is_plain = self._text[inner.start] not in "[{"
            if is_plain and rank >= MAX_PLAIN_ITEMS and parts.total > MAX_PLAIN_ITEMS + 2:
                break
            share = weight * (ARRAY_FACTOR if is_plain else 1.0) * (1 + rank) ** -RANK_DECAY
            node.parts.append(self.read(inner, node, f"{path}[]", depth, share))

    def _read_leaf(self, part: Part, parent: _Node | None, path: str, weight: float, key_tokens: float) -> _Node:
        tokens = (part.stop - part.start) * self._rate
        if self._most is not None and tokens > UNFIT_FACTOR * self._most and self._text[part.start] in "[{":
            return _Node(part.key, parent, tokens + key_tokens)  # without weight, so it is never kept
        raw = self._text[part.start : part.stop]
        if raw[0] == '"' and len(raw) * self._rate > LONG_STRING_TOKENS:
            raw = cut_string(raw, int(LONG_STRING_TOKENS / self._rate))
        elif raw[0] in "[{":
            raw = unbreak(raw)
        info = self._news.info.get(path, 1.0)
        info = max(info, 0.3) if self._is_first else (info if info > 0.1 else 0.0)
        if raw[0] == '"':
            info *= (SAYS_FACTOR if " " in raw else 1.0) * (1.0 if self._named else NAME_FACTOR)
            self._named = True
        leaf = _Node(part.key, parent, len(raw) * self._rate + key_tokens, text=raw)
        leaf.weight = info * weight / (BASE_TOKENS + leaf.tokens)
        self.leaves.append(leaf)
        return leaf


def _forget(node: _Node) -> None:
    node.is_kept = False
    for part in node.parts:
        if part.is_kept:
            _forget(part)


def _needed(leaf: _Node) -> float:
    """Tokens of a leaf, with the containers around it that are not kept yet."""
    tokens, node = leaf.tokens, leaf.parent
    while node is not None and not node.is_kept:
        tokens += node.tokens
        node = node.parent
    return tokens


def _keep(leaf: _Node) -> None:
    node: _Node | None = leaf
    while node is not None and not node.is_kept:
        node.is_kept = True
        node = node.parent


def _write(node: _Node, signs: Signs) -> str:
    if not node.opening:
        return node.text
    written = [signs.member(part.key, _write(part, signs)) for part in node.parts if part.is_kept]
    if node.opening == "{":
        return signs.object(written)
    if len(written) < node.total:
        written.append(f'"{mark_items(node.total - len(written), node.total)}"')
    return signs.array(written)
