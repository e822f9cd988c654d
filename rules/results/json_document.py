"""Outlines of JSON documents that are too long. Of a collection of records, those that stand out are kept.

Law: JSON stays JSON. A kept value keeps its text; only long strings are cut. A marker says what is missing. Records
stand out among many similar ones by extreme numbers, rare values or rare keys. A value that all records share carries
no information, and a column in which every value is rare carries little.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import chain, pairwise
from math import log, sqrt
from typing import Any

import msgspec

from trimtab.rules.conversation import CountTokens
from trimtab.rules.results.json_records import (
    MAX_KEY_CHARS,
    Document,
    News,
    NotJsonError,
    Part,
    Parts,
    Record,
    Thinning,
    cut_string,
    read_signs,
    split_parts,
    split_string,
    unbreak,
)
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import (
    mark_characters,
    mark_member_records,
    mark_members,
    mark_more_items,
    mark_records,
    name_member,
)

# The numbers here are chosen. `python -m bench.retention.run --only facts` measures what the excerpts keep, and
# tests/attack/test_memory.py what large documents cost in memory.
MIN_RECORDS = 5  # Fewer containers side by side are not a collection
RECORD_SHARE, MIN_RECORD_TOKENS = 0.12, 60
"""The most that one record may have: this share of its collection's room, or 60 tokens if that is more."""
MAX_MISSES = 8  # A collection is full if this many records did not fit
MAX_DECODED_CHARS = 512 * 1024  # A longer record is not decoded, as that would hold the interpreter too long
MAX_DEPTH, MAX_LARGE_DEPTH, LARGE_CHARS = 24, 8, 100_000
"""Depth to which a document is read; the second one is for values of LARGE_CHARS or more, to save time."""
MAX_PLAIN_CHARS = 60  # A longer number that does not fit is replaced by a marker
WHOLE_CHARS = 4000
"""A longer value's cost is estimated by its full length; that of a shorter one by its length without line breaks."""
MARKER_TOKENS = 14  # about what a marker costs
ROUNDS = 6  # attempts to come near the limit
USED_SHARE = 0.95  # an outline that uses this share of the limit is not enlarged
LINES_LOOKED_AT, MIN_LINES, MIN_TEXT_TOKENS = 100_000, 4, 60
"""A string with 4 line breaks or more in its first 100,000 characters and room for 60 tokens is shortened as a text."""
ESCAPED_SHARE = 0.85  # Share of a string's room for its text; the rest is for the escapes in it
SAMPLE_CHARS = 20_000  # beginning of the document by which its tokens a character are estimated
LARGE_DOCUMENT_CHARS = 1024 * 1024
"""In a longer document, containers with very many parts are thinned out while they are read."""
WINDOW_PARTS, WINDOW_CHARS, CHOSEN_PARTS = 8192, 512 * 1024, 64
"""Records that are compared at once to find those that stand out, and how many of them are kept."""
MIN_HEAD, MIN_TAIL = 256, 32
"""Parts kept at both ends when thinning. More for a larger budget: as each costs at least a token, no more can fit."""
DECODED_HEAD, MAX_LARGE_DECODED_CHARS = 256, 16 * 1024
"""In a large document, this many of the first records are decoded, and no record longer than 16 KiB."""
CACHED_CHARS = 1024 * 1024  # total length of the records that are read once for all rounds
_BEGINNINGS = frozenset({"{", "[", "\ufeff", ""})
_LONE_SURROGATE = compile_late(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_decode = msgspec.json.Decoder(float_hook=float).decode
_check = msgspec.json.Decoder(msgspec.Raw).decode

ShortenString = Callable[[str, int], str | None]
"""Shortens a text within a document to a number of tokens; None if that is impossible."""


def excerpt_json(text: str, limit: int, count: CountTokens, shorten: ShortenString = lambda _, __: None) -> str | None:
    """An outline of a JSON object or array in at most `limit` tokens; None if it is not JSON, or no outline fits."""
    if text[:SAMPLE_CHARS].strip()[:1] not in _BEGINNINGS:
        return None
    document = text.strip().removeprefix("\ufeff").lstrip()
    if not document or document[0] + document[-1] not in {"{}", "[]"}:
        return None
    try:
        return _Outline(document, count, shorten, limit).write(limit, count)
    except (NotJsonError, msgspec.DecodeError, RecursionError):
        return None


class _Outline:
    """Outlines of one document, and what has been read of it so far."""

    def __init__(self, text: str, count: CountTokens, shorten: ShortenString, limit: int) -> None:
        self._text = text
        self._is_large = len(text) > LARGE_DOCUMENT_CHARS
        self._thinning: Thinning | None = None
        if self._is_large:
            head, tail = max(limit, MIN_HEAD), max(limit // 4, MIN_TAIL)
            self._thinning = Thinning(head, tail, WINDOW_PARTS, WINDOW_CHARS, self._choose)
        self._shorten = shorten
        sample = unbreak(text[:SAMPLE_CHARS])
        self._rate = count(sample) / max(len(sample), 1)
        self._signs = read_signs(text)
        self._marker_key = f'"{name_member(text)}"'
        most_leaves = int(max(limit * RECORD_SHARE, MIN_HEAD)) if self._is_large else None
        self._document = Document(text, self._rate, self._signs, most_leaves)
        self._records: dict[int, Record] = {}
        self._cached_chars = 0
        self._parts: dict[tuple[int, int], Parts] = {}
        self._news: dict[int, News] = {}

    def write(self, limit: int, count: CountTokens) -> str | None:
        """The largest outline found within the limit. Each round scales the room by how much the last one used."""
        room, best, best_tokens = limit * USED_SHARE, None, 0
        for _ in range(ROUNDS):
            written = self._fit(0, len(self._text), room, 0)
            tokens = count(written)
            if tokens > limit:
                room *= limit * USED_SHARE / tokens
                continue
            if best is None or tokens > best_tokens:
                best, best_tokens = written, tokens
            if tokens >= limit * USED_SHARE:
                break
            room *= min(1.4, limit * 0.98 / max(tokens, 1))
        if best is not None:
            _check(_encode(best))
        return best

    def _fit(self, start: int, stop: int, room: float, depth: int) -> str:
        """The value in text[start:stop] in about `room` tokens, if it can be made that small."""
        text = self._text
        if self._cost(start, stop) <= room:
            return unbreak(text[start:stop])
        if text[start] == '"':
            return self._fit_string(text[start:stop], room)
        is_plain, most_depth = text[start] not in "[{", MAX_DEPTH if stop - start < LARGE_CHARS else MAX_LARGE_DEPTH
        if is_plain or depth >= most_depth:
            is_short = is_plain and stop - start <= MAX_PLAIN_CHARS
            return text[start:stop] if is_short else f'"{mark_characters(stop - start)}"'
        parts = self._split(start, stop)
        if len(parts) >= MIN_RECORDS and parts.are_containers():
            return self._fit_collection(start, parts, room)
        return self._fit_object(parts, room, depth) if text[start] == "{" else self._fit_array(parts, room, depth)

    def _fit_string(self, raw: str, room: float) -> str:
        """A text of several lines is shortened as a text; of any other string, the beginning is kept."""
        if raw.count("\\n", 0, LINES_LOOKED_AT) >= MIN_LINES and room >= MIN_TEXT_TOKENS:
            try:
                text = "".join(map(_decode, split_string(raw)))
                short = self._shorten(text, int(room * ESCAPED_SHARE))
                if short is not None:
                    return msgspec.json.encode(short).decode()
            except (msgspec.DecodeError, UnicodeEncodeError):
                pass
        return cut_string(raw, int(room / self._rate))

    def _split(self, start: int, stop: int) -> Parts:
        if (parts := self._parts.get((start, stop))) is None:
            parts = self._parts[start, stop] = split_parts(self._text, start, stop, self._thinning)
        return parts

    def _cost(self, start: int, stop: int) -> float:
        chars = stop - start
        return self._rate * (chars if chars > WHOLE_CHARS else len(unbreak(self._text[start:stop])))

    def _fit_object(self, parts: Parts, room: float, depth: int) -> str:
        """The members, each with room by the root of its need; the smallest first, what they leave goes to others."""
        needs = [self._cost(part.start, part.stop) + self._key_cost(part) for part in parts]
        left = room - MARKER_TOKENS
        roots = sum(map(sqrt, needs))
        shares: dict[int, float] = {}
        for index in sorted(range(len(parts)), key=needs.__getitem__):
            share = min(needs[index], max(left * sqrt(needs[index]) / max(roots, 1e-9), 0))
            roots -= sqrt(needs[index])
            if share >= min(needs[index], self._key_cost(parts[index]) + MARKER_TOKENS):
                shares[index] = share
                left -= share
        members = [
            self._signs.member(
                part.key, self._fit(part.start, part.stop, shares[index] - self._key_cost(part), depth + 1)
            )
            for index, part in enumerate(parts)
            if index in shares
        ]
        if len(members) < parts.total:
            missing = f'"{mark_members(parts.total - len(members), parts.total)}"'
            members.append(self._signs.member(self._marker_key, missing))
        return self._signs.object(members)

    def _key_cost(self, part: Part) -> float:
        return (len(part.key) + 2) * self._rate + 1

    def _fit_array(self, parts: Parts, room: float, depth: int) -> str:
        """The first items and the last ones."""
        left = room - MARKER_TOKENS
        last = len(parts) - 1
        head = self._take(map(parts.__getitem__, range(parts.head)), left * 0.75, depth)
        behind = range(last, max(len(head), last - parts.tail), -1)
        tail = self._take(map(parts.__getitem__, behind), left * 0.25, depth)[::-1]
        missing = parts.total - len(head) - len(tail)
        marker = [f'"{mark_more_items(missing, parts.total)}"'] if missing else []
        return self._signs.array((*head, *marker, *tail))

    def _take(self, parts: Iterable[Part], room: float, depth: int) -> list[str]:
        taken = []
        for part in parts:
            if room <= 0:
                break
            item = self._fit(part.start, part.stop, room / 2, depth + 1)
            room -= len(item) * self._rate + 1
            if room < 0:
                break
            taken.append(item)
        return taken

    def _fit_collection(self, start: int, parts: Parts, room: float) -> str:
        if (news := self._news.get(start)) is None:
            news = self._news[start] = read_news(self._decode_all(parts, parts.head), len(parts))
        left = room - MARKER_TOKENS
        share = max(MIN_RECORD_TOKENS, room * RECORD_SHARE, left / parts.total * USED_SHARE)
        written: dict[int, str] = {}
        misses = 0
        # The first record, the one that stands out most, the last one, others that stand out, the rest.
        order = chain((0,), news.order[:1], (len(parts) - 1,), news.order, range(len(parts)))
        for index in dict.fromkeys(order):
            if left < min(share, MIN_RECORD_TOKENS) / 2 or misses > MAX_MISSES:
                break
            part = parts[index]
            record = self._read(part, index, news).write(min(share, left))
            cost = (len(record) + 2) * self._rate + (self._key_cost(part) if part.key else 0)
            if cost > left or len(record) <= 2:
                misses += 1
                continue
            written[index] = self._signs.member(part.key, record)
            left -= cost
        kept, missing = [written[index] for index in sorted(written)], parts.total - len(written)
        if self._text[start] == "[":
            return self._signs.array((*kept, f'"{mark_records(missing, parts.total)}"'))
        marker = f'"{mark_member_records(missing, parts.total)}"'
        return self._signs.object((*kept, self._signs.member(self._marker_key, marker)))

    def _choose(self, parts: Sequence[Part]) -> list[int]:
        return read_news(self._decode_all(parts, 0), len(parts)).order[:CHOSEN_PARTS]

    def _decode_all(self, parts: Iterable[Part], head: int) -> Iterator[Any]:
        """The records' values; None for those that are too long to be decoded.

        In a large document, WINDOW_CHARS are decoded of the first `head` records, and as many of the others.
        """
        left = [WINDOW_CHARS, WINDOW_CHARS]  # for the others, for the first ones
        for number, part in enumerate(parts):
            chars, is_read = part.stop - part.start, part.stop - part.start <= MAX_DECODED_CHARS
            if self._is_large:
                most = min(MAX_LARGE_DECODED_CHARS, left[number < head])
                is_read = chars <= most and not DECODED_HEAD <= number < head
                left[number < head] -= chars * is_read
            yield _read(self._text[part.start : part.stop]) if is_read else None

    def _read(self, part: Part, number: int, news: News) -> Record:
        record = self._records.get(part.start)
        if record is None:
            record = Record(self._document, part, number, news)
            self._cached_chars += part.stop - part.start
            if self._cached_chars <= CACHED_CHARS:
                self._records[part.start] = record
        return record


def _encode(text: str) -> bytes:
    """UTF-8 of a JSON text, for the decoder. Surrogates are replaced: JSON may contain them, UTF-8 may not."""
    if "\\ud" in text or "\\uD" in text:
        text = _LONE_SURROGATE.sub(r"\\ufffd", text)
    return text.encode("utf-8", "replace")


def _read(text: str) -> Any:
    """A decoded record; None if it cannot be decoded. Such a record does not stand out."""
    try:
        return _decode(_encode(text))
    except (msgspec.DecodeError, RecursionError):
        return None


MAX_NEWS_DEPTH = 5  # levels of a record that are read
MAX_NEWS_ITEMS = 40  # Items of an array within a record that are read
MAX_VALUES = 256  # The rarest values of a column that are weighed
NEWS_DEPTH_FACTOR = 0.85  # of a column's weight, for each level of nesting
LARGEST_WEIGHT, SMALLEST_WEIGHT = 1.0, 0.9
"""Weights of the record with the largest number of a column, and of the one with the smallest."""
MAX_NUMBER = 10**300  # A larger integer is not read as a number: the largest float is about 1.8e308
RARE_SHARE = 0.2  # A value or a key that a larger share of the records has is common
EXTRA_KEY_SHARE = 0.9
"""Weight of a record with a rare key. Also: if this share of the records has a key, all of them count as having it."""
CONSTANT_INFO, ONLY_VALUE_INFO, FEW_VALUES_INFO = 0.05, 0.6, 1.3
"""Information in a column with one value in all records, with one value in some of them, and with few values."""
_PLACE_NAMES = compile_late(
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
            if not (type(value) is float or (type(value) is int and abs(value) < MAX_NUMBER)):
                return {}
            totals[number] = totals.get(number, 0.0) + float(value)
        return totals


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
        for key, part in value.items() if depth < MAX_NEWS_DEPTH else ():
            _collect(part, f"{path}.{key[:MAX_KEY_CHARS]}", into, depth + 1)
        return
    column = columns[f"{path}#" if isinstance(value, list) else path]
    column.numbers.append(number)
    column.values.append(len(value) if isinstance(value, list) else value)
    for part in value[:MAX_NEWS_ITEMS] if isinstance(value, list) and depth < MAX_NEWS_DEPTH else ():
        _collect(part, f"{path}[]", into, depth + 1)


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
