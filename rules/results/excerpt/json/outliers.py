"""Which of many like records are the news: extreme numbers, rare values, keys that others do not have.

Law: a function of the records. What all of them share tells nothing; a column whose every value is rare tells little.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import pairwise
from math import log
from typing import Any

MAX_DEPTH = 5
MAX_ITEMS = 40
"""Of an array within a record, looked at."""
MAX_VALUES = 256
"""Of a column, the rarest."""
MAX_KEY_CHARS = 80
"""Of a key, in the path of its column."""
DEPTH_FACTOR = 0.85
LARGEST_WEIGHT, SMALLEST_WEIGHT = 1.0, 0.9
"""Of the record with the largest number of a column, and with the smallest."""
MAX_NUMBER = 10**300
"""A larger one is no float."""
RARE_SHARE = 0.2
"""A value that more records have is common."""
EXTRA_KEY_SHARE = 0.9
CONSTANT_INFO, ONLY_VALUE_INFO, FEW_VALUES_INFO = 0.05, 0.6, 1.3
_PLACE_NAMES = re.compile(
    r"(?:^|[._\]]|end_?|start_?|begin_?)(?:id|line|row|column|col|offset|index|lat|lon|lng|timestamp|time|port|pid)s?$|Id$",
    re.IGNORECASE,
)
"""Numbers that say where or which: their extremes are no news."""


Values = Mapping[str, Sequence[int]]
"""The different values of a column, each with the numbers of the records that have it."""


@dataclass(slots=True)
class Column:
    """The values at one path, and the numbers of the records that have them, oldest first; some have several."""

    numbers: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, number: int, value: Any) -> None:
        """One more."""
        self.numbers.append(number)
        self.values.append(value)

    def group_values(self) -> Values:
        """Its values, as text."""
        values: dict[str, list[int]] = {}
        for number, value in zip(self.numbers, self.values, strict=True):
            values.setdefault(str(value), []).append(number)
        return values

    def count_records(self) -> int:
        """How many records have one."""
        return sum(before != after for before, after in pairwise((-1, *self.numbers)))

    def total(self) -> Mapping[int, float]:
        """The sum of each record's numbers; nothing where the column has anything else."""
        totals: dict[int, float] = {}
        for number, value in zip(self.numbers, self.values, strict=True):
            amount = _to_number(value)
            if amount is None:
                return {}
            totals[number] = totals.get(number, 0.0) + amount
        return totals


@dataclass(slots=True)
class News:
    """Which records are news, the strongest first; `info` is how much a column tells about a record: 1 for most."""

    order: list[int] = field(default_factory=list)
    info: dict[str, float] = field(default_factory=dict)


def read_news(records: Iterable[Any], total: int) -> News:
    """The news among so many records, decoded JSON of any form."""
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
    """The scalars of record `into[0]` into the columns of their paths, and how many items its arrays have."""
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
    """What a column tells that has so many different values, and so many records that have it."""
    if values <= 1:
        return CONSTANT_INFO if holders >= EXTRA_KEY_SHARE * records else ONLY_VALUE_INFO
    return FEW_VALUES_INFO if values <= max(3, records // 3) else 1.0


def _read_column(path: str, column: Column, values: Values, records: int) -> Iterator[tuple[float, int]]:
    """Weights of the records that a column makes the news."""
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
    if 0.05 < rising < 0.95:
        if not _is_place(path):
            yield from extremes
    elif rising not in {0.0, 1.0}:  # a sequence, but for a few: what breaks it is the news
        ends = {next(iter(totals)), next(reversed(totals))}
        yield from ((weight, number) for weight, number in extremes if number not in ends)


def _is_place(path: str) -> bool:
    """Whether numbers of a column say where or which."""
    return _PLACE_NAMES.search(path.removesuffix("[]")) is not None


def _read_rare(values: Values) -> Iterator[tuple[float, int]]:
    total = sum(map(len, values.values()))
    rare = sum(len(numbers) <= RARE_SHARE * total for numbers in values.values())
    for numbers in nsmallest(MAX_VALUES, values.values(), key=len):
        if len(numbers) > RARE_SHARE * total:
            break
        weight = _rarity(len(numbers), total) / rare**0.5
        yield weight, numbers[0]
        if numbers[-1] != numbers[0]:
            yield weight / 2, numbers[-1]


def _rarity(holders: int, records: int) -> float:
    return log((records + 1) / holders) / log(records + 1)
