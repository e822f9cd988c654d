"""Which of many like records are the news: extreme numbers, rare values, keys that others do not have.

Law: a function of the records. What all of them share tells nothing; a column whose every value is rare tells little.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from typing import Any

MAX_DEPTH = 5
MAX_ITEMS = 40
"""Of an array within a record, looked at."""
DEPTH_FACTOR = 0.85
EXTREMES = ((-1, 1.0), (0, 0.9), (-2, 0.5), (1, 0.4))
"""The largest and the smallest number of a column, then those next to them."""
RARE_SHARE = 0.2
"""A value that more records have is common."""
ALARM_BONUS = 0.4
EXTRA_KEY_SHARE = 0.9
CONSTANT_INFO, ONLY_VALUE_INFO, FEW_VALUES_INFO = 0.05, 0.6, 1.3
_ALARM = re.compile(
    r"(?:critical|fatal|error|fail(?:ed|ure)?|high|blocker|severe|panic|denied|rejected|timeout|crash(?:ed)?)",
    re.IGNORECASE,
)
_PLACE_NAMES = re.compile(
    r"(?:^|[._\]])(?:id|line|row|column|col|offset|index|lat|lon|lng|timestamp|time|port|pid)s?$|Id$", re.IGNORECASE
)
"""Numbers that say where or which: their extremes are no news."""

Column = dict[int, list[Any]]


@dataclass(slots=True)
class News:
    """`order` are records by how much they are news; `told` which column of which record made them so.

    `info` is how much a column's value tells about a record: 1 for most.
    """

    order: list[int] = field(default_factory=list)
    told: set[tuple[int, str]] = field(default_factory=set)
    info: dict[str, float] = field(default_factory=dict)


def read_news(records: Sequence[Any]) -> News:
    """The news among records, decoded JSON of any form."""
    columns: dict[str, Column] = defaultdict(dict)
    for number, record in enumerate(records):
        for path, value in _walk(record, "", 0):
            columns[path].setdefault(number, []).append(value)
    news = News()
    items: list[tuple[float, int, str]] = []
    for path, column in columns.items():
        news.info[path] = _info(column, len(records))
        nested = DEPTH_FACTOR ** (path.count(".") - 1 + path.count("[]"))
        items += [(weight * nested, number, path) for weight, number in _read_column(path, column, len(records))]
    for _, number, path in sorted(items, key=lambda item: (-item[0], item[1])):
        news.told.add((number, path))
    news.order = list(dict.fromkeys(number for _, number, _ in sorted(items, key=lambda item: (-item[0], item[1]))))
    return news


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """The scalars of a record with their paths, and how many items its arrays have."""
    if isinstance(value, dict):
        if depth < MAX_DEPTH:
            for key, part in value.items():
                yield from _walk(part, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        yield f"{path}#", len(value)
        if depth < MAX_DEPTH:
            for part in value[:MAX_ITEMS]:
                yield from _walk(part, f"{path}[]", depth + 1)
    else:
        yield path, value


def _info(column: Column, records: int) -> float:
    values = {str(value) for values in column.values() for value in values}
    if len(values) <= 1:
        return CONSTANT_INFO if len(column) >= EXTRA_KEY_SHARE * records else ONLY_VALUE_INFO
    return FEW_VALUES_INFO if len(values) <= max(3, records // 3) else 1.0


def _read_column(path: str, column: Column, records: int) -> Iterator[tuple[float, int]]:
    """Weights of the records that a column makes the news."""
    holders: dict[str, list[int]] = defaultdict(list)
    for number, values in column.items():
        for value in {str(value) for value in values}:
            holders[value].append(number)
    if path.endswith("#") and len(holders) <= 1:
        return
    totals = _total(column)
    if totals:
        yield from _read_extremes(path, totals)
    if len(holders) <= max(3, len(column) // 3):
        yield from _read_rare(holders, records)
    if len(column) <= RARE_SHARE * records:
        yield EXTRA_KEY_SHARE * _rarity(len(column), records), min(column)


def _total(column: Column) -> Mapping[int, float]:
    """The sum of each record's numbers; nothing where the column has anything else."""
    totals = {}
    for number, values in column.items():
        if any(type(value) not in {int, float} for value in values):
            return {}
        totals[number] = sum(values)
    return totals


def _read_extremes(path: str, totals: Mapping[int, float]) -> Iterator[tuple[float, int]]:
    if len(set(totals.values())) <= 2 or _PLACE_NAMES.search(path.removesuffix("[]")):
        return
    rising = sum(before <= after for before, after in pairwise(totals.values())) / (len(totals) - 1)
    if 0.05 < rising < 0.95:
        ordered = sorted(totals, key=totals.__getitem__)
        yield from ((weight, ordered[place]) for place, weight in EXTREMES)


def _read_rare(holders: Mapping[str, Sequence[int]], records: int) -> Iterator[tuple[float, int]]:
    rare = sum(len(numbers) <= RARE_SHARE * records for numbers in holders.values())
    for value, numbers in holders.items():
        alarms = _ALARM.fullmatch(value) is not None
        if len(numbers) > RARE_SHARE * records and not alarms:
            continue
        weight = _rarity(len(numbers), records) / max(rare, 1) ** 0.5 + (ALARM_BONUS if alarms else 0.0)
        yield weight, numbers[0]
        if len(numbers) > 1:
            yield weight / 2, numbers[-1]


def _rarity(holders: int, records: int) -> float:
    return log((records + 1) / holders) / log(records + 1)
