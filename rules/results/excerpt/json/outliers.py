"""The news: records that stand out among many similar ones, by extreme numbers, rare values or rare keys.

Law: a function of the records. A value that all records share carries no information, and a column in which every value
is rare carries little.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import pairwise
from math import log
from typing import Any

# The weights are chosen. `python -m bench.retention.run --only facts` measures what the excerpts keep.
MAX_DEPTH = 5  # levels of a record that are read
MAX_ITEMS = 40
"""Items of an array within a record that are read."""
MAX_VALUES = 256
"""The rarest values of a column that are weighed."""
MAX_KEY_CHARS = 80
"""Longest part of a key in the path of its column."""
DEPTH_FACTOR = 0.85  # of a column's weight, for each level of nesting
LARGEST_WEIGHT, SMALLEST_WEIGHT = 1.0, 0.9
"""Weights of the record with the largest number of a column, and of the one with the smallest."""
MAX_NUMBER = 10**300
"""A larger integer is not read as a number: the largest float is about 1.8e308."""
RARE_SHARE = 0.2
"""A value or a key that a larger share of the records has is common."""
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


@dataclass(slots=True)
class Column:
    """The values at one path, in the order of the records.

    numbers: the record of each value. A record may have several values, or none.
    """

    numbers: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, number: int, value: Any) -> None:
        """Add a value of record `number`."""
        self.numbers.append(number)
        self.values.append(value)

    def group_values(self) -> Values:
        """The records of each distinct value; the keys are the values as text."""
        values: dict[str, list[int]] = {}
        for number, value in zip(self.numbers, self.values, strict=True):
            values.setdefault(str(value), []).append(number)
        return values

    def count_records(self) -> int:
        """How many records have a value here."""
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


@dataclass(slots=True)
class News:
    """The records that stand out in a collection.

    order: the numbers of the records that stand out, strongest first.
    info: how much information each column carries, by its path; 1 for most.
    """

    order: list[int] = field(default_factory=list)
    info: dict[str, float] = field(default_factory=dict)


def read_news(records: Iterable[Any], total: int) -> News:
    """Find the records that stand out among `total` decoded ones, which may have any form."""
    columns: dict[str, Column] = defaultdict(Column)
    for number, record in enumerate(records):
        _collect(record, "", (number, columns), 0)
    news = News()
    items: list[tuple[float, int]] = []
    for path, column in columns.items():
        values = column.group_values()
        news.info[path] = _info(len(values), column.count_records(), total)
        nested = DEPTH_FACTOR ** (path.count(".") - 1 + path.count("[]"))
        items += [(-weight * nested, number) for weight, number in _read_column(path, column, values, total)]
    news.order = list(dict.fromkeys(number for _, number in sorted(items)))
    return news


def _collect(value: Any, path: str, into: tuple[int, dict[str, Column]], depth: int) -> None:
    """Add the scalars and the array lengths of a record to the columns of their paths.

    `into` holds the record's number and the columns.
    """
    number, columns = into
    if isinstance(value, dict):
        if depth < MAX_DEPTH:
            for key, part in value.items():
                _collect(part, f"{path}.{key[:MAX_KEY_CHARS]}", into, depth + 1)
    elif isinstance(value, list):
        columns[f"{path}#"].add(number, len(value))
        if depth < MAX_DEPTH:
            for part in value[:MAX_ITEMS]:
                _collect(part, f"{path}[]", into, depth + 1)
    else:
        columns[path].add(number, value)


def _info(values: int, holders: int, records: int) -> float:
    """The information in a column with this many distinct values, in `holders` of all records."""
    if values <= 1:
        return CONSTANT_INFO if holders >= EXTRA_KEY_SHARE * records else ONLY_VALUE_INFO
    return FEW_VALUES_INFO if values <= max(3, records // 3) else 1.0


def _read_column(path: str, column: Column, values: Values, records: int) -> Iterator[tuple[float, int]]:
    """Weights and numbers of the records that stand out in one column."""
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
