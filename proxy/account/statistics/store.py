"""Sums over requests by day, model and client, and the stores that keep them.

Law: all figures are whole numbers that only grow, so sums of sums are exact in any order. A batch counts once, however
often it is written, because a store that did not answer may have kept it. The event loop never waits for the disk.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache, partial
from operator import add, attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import msgspec

from proxy.state.catalogue.costs import Bill, Cost, Tokens
from proxy.state.stores.sqlite_file import FileForm, SqliteFile
from proxy.state.stores.sqlite_thread import SqliteThread
from proxy.state.stores.store import StoreError

DAY_SECONDS = 86400  # source: 24 hours
_FIRST_DAY = date(1970, 1, 1).toordinal()
KEPT_DAYS = 366
"""Sums of older days are deleted. Source: the promise to keep them for a year."""
MOST = 2**63
"""No figure reaches it. Source: the largest number in SQLite and in Redis."""
NO_CLIENT = "-"
"""The client of requests whose key has no name."""


class Place(NamedTuple):
    """Where sums belong. day: in UTC, as `2026-01-31`. model: the metrics' label. client: the name of its key."""

    day: str
    model: str
    client: str

    @classmethod
    def read(cls, *names: Any) -> Self:
        """The place with these names. Raises ValueError if they are none."""
        if len(names) != len(cls._fields) or not all(isinstance(name, str) for name in names):
            message = "a name in it is not one of trimtab's"
            raise ValueError(message)
        return cls(*names)


class Sums(msgspec.Struct, frozen=True):
    """Sums over requests. `_nanodollars` is money, `_tokens` the model's own tokens.

    requests: those that were answered. unpriced_requests: of which no price in dollars is known; their money is missing
        here. estimated_requests: of which the upstream did not report all tokens.
    original_tokens: the prompts as the clients sent them. sent_tokens: as forwarded. cached_tokens and written_tokens
        are parts of these.
    summaries: calls for summaries that were answered. unpriced_summaries: those of which no price is known.
    without_nanodollars: what the requests would have cost without trimtab.
    """

    requests: int = 0
    unpriced_requests: int = 0
    estimated_requests: int = 0
    original_tokens: int = 0
    sent_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    completion_tokens: int = 0
    summaries: int = 0
    unpriced_summaries: int = 0
    summary_tokens: int = 0
    fresh_nanodollars: int = 0
    cached_nanodollars: int = 0
    written_nanodollars: int = 0
    completion_nanodollars: int = 0
    summary_nanodollars: int = 0
    without_nanodollars: int = 0

    @classmethod
    def read(cls, figures: Mapping[str, Any]) -> Self:
        """The sums with these figures. Raises ValueError if one of them cannot be a sum of trimtab's."""
        if not all(name in NAMES and type(amount) is int and 0 <= amount < MOST for name, amount in figures.items()):
            message = "a figure in it is not one of trimtab's"
            raise ValueError(message)
        return cls(**figures)

    @classmethod
    def of_bill(cls, bill: Bill) -> Self:
        """The sums of one request."""
        cost, without = bill.cost or Cost(), bill.without_cost or Cost()
        return cls(
            requests=1,
            unpriced_requests=int(bill.cost is None),
            estimated_requests=int(bill.is_estimated),
            original_tokens=bill.without.prompt,
            sent_tokens=bill.tokens.prompt,
            cached_tokens=bill.tokens.cached,
            written_tokens=bill.tokens.written,
            completion_tokens=bill.tokens.completion,
            fresh_nanodollars=cost.fresh,
            cached_nanodollars=cost.cached,
            written_nanodollars=cost.written,
            completion_nanodollars=cost.completion,
            without_nanodollars=without.total,
        )

    @classmethod
    def of_summary(cls, tokens: Tokens, cost: Cost | None) -> Self:
        """The sums of one call for a summary."""
        return cls(
            summaries=1,
            unpriced_summaries=int(cost is None),
            summary_tokens=tokens.prompt + tokens.completion,
            summary_nanodollars=0 if cost is None else cost.total,
        )

    @property
    def cost_nanodollars(self) -> int:
        """What the requests have cost, summaries included."""
        prompts = self.fresh_nanodollars + self.cached_nanodollars + self.written_nanodollars
        return prompts + self.completion_nanodollars + self.summary_nanodollars

    @property
    def is_unpriced(self) -> bool:
        """Whether there were requests, or only summaries, and no price of any is known: their money is not 0."""
        if self.requests:
            return self.unpriced_requests == self.requests
        return 0 < self.summaries == self.unpriced_summaries

    @property
    def saved_nanodollars(self) -> int:
        """What trimtab has saved, net of all that it has cost; negative for a loss."""
        return self.without_nanodollars - self.cost_nanodollars

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(*map(add, _read_all(self), _read_all(other)))

    def to_dict(self) -> dict[str, int]:
        """The figures by name."""
        return dict(zip(NAMES, _read_all(self), strict=True))


NAMES = Sums.__struct_fields__
"""The names of all figures, in order."""
_read_all = attrgetter(*NAMES)

Rows = Mapping[Place, Sums]


def name_day(seconds: float) -> str:
    """The day of a time in seconds since 1970, in UTC."""
    return _name_day(int(seconds // DAY_SECONDS))


@lru_cache(8)
def _name_day(number: int) -> str:
    """The day of this number since 1970."""
    return date.fromordinal(_FIRST_DAY + number).isoformat()


def go_back(day: str, days: int) -> str:
    """The day so many days before another one."""
    return (date.fromisoformat(day) - timedelta(days)).isoformat()


@dataclass(frozen=True, slots=True)
class Batch:
    """Sums to add. `writer` has written all batches before this `number`. `today`: the day of the writing, in UTC."""

    writer: str
    number: int
    today: str
    rows: Rows

    @property
    def oldest_day(self) -> str:
        """The oldest day that is kept."""
        return go_back(self.today, KEPT_DAYS)


class StatisticsStore(Protocol):
    """Sums by place. Several processes may add to them at the same time."""

    name: str

    async def add(self, batch: Batch) -> None:
        """Add a batch, unless it was added before, and delete what is too old. Raises StoreError."""

    async def read(self, first_day: str, today: str) -> dict[Place, Sums]:
        """The sums of these days. Raises StoreError."""

    async def close(self) -> None:
        """Close files and connections."""


class MemoryStatistics:
    """Sums of this process."""

    name = "memory"

    def __init__(self) -> None:
        self._rows: dict[Place, Sums] = {}
        self._numbers: dict[str, int] = {}

    async def add(self, batch: Batch) -> None:
        """Add a batch, unless it was added before."""
        if batch.number > self._numbers.get(batch.writer, 0):
            self._numbers[batch.writer] = batch.number
            for place, sums in batch.rows.items():
                self._rows[place] = self._rows.get(place, Sums()) + sums
            self._rows = {place: sums for place, sums in self._rows.items() if place.day >= batch.oldest_day}

    async def read(self, first_day: str, today: str) -> dict[Place, Sums]:
        """The sums of these days."""
        return {place: sums for place, sums in sorted(self._rows.items()) if first_day <= place.day <= today}

    async def close(self) -> None:
        """Do nothing; there is nothing to release."""


APPLICATION_ID = 0x7472696E
"""The letters `trin`: the number after that of the summaries' file."""
SCHEMA_VERSION = 1  # raised whenever the tables change
WRITER_DAYS = 2
"""Days for which the number of a writer's last batch is kept. Chosen: longer than a batch is ever tried again."""
_COLUMNS = ", ".join(f"{name} INTEGER NOT NULL" for name in NAMES)
FORM = FileForm(
    APPLICATION_ID,
    SCHEMA_VERSION,
    f"""
CREATE TABLE sums (day TEXT NOT NULL, model TEXT NOT NULL, client TEXT NOT NULL, {_COLUMNS},
  PRIMARY KEY (day, model, client)) WITHOUT ROWID;
CREATE TABLE writers (writer TEXT PRIMARY KEY, number INTEGER NOT NULL, day TEXT NOT NULL)
""",
)
_ADD = (
    f"INSERT INTO sums (day, model, client, {', '.join(NAMES)}) VALUES ({', '.join('?' * (3 + len(NAMES)))})"  # noqa: S608 - our own names
    f" ON CONFLICT DO UPDATE SET {', '.join(f'{name} = {name} + excluded.{name}' for name in NAMES)}"
)
_READ = f"SELECT day, model, client, {', '.join(NAMES)} FROM sums WHERE day BETWEEN ? AND ? ORDER BY day, model, client"  # noqa: S608 - our own names


class SqliteStatistics:
    """A StatisticsStore in one file."""

    name = "sqlite"

    def __init__(self, path: Path, *, log: Any) -> None:
        self._path = path
        self._thread = SqliteThread(self.name, SqliteFile(path, lambda _: None, log, FORM))

    async def add(self, batch: Batch) -> None:
        """Add a batch, unless it was added before, and delete what is too old."""
        await self._thread.use(partial(_add, batch=batch))

    async def read(self, first_day: str, today: str) -> dict[Place, Sums]:
        """The sums of these days; none if there is no file yet. Raises StoreError."""
        if not self._path.exists():
            return {}
        rows = await self._thread.use(lambda connection: connection.execute(_READ, (first_day, today)).fetchall())
        try:
            return {Place.read(*row[:3]): Sums.read(dict(zip(NAMES, row[3:], strict=True))) for row in rows}
        except ValueError as error:
            raise StoreError(self.name, str(error)) from error

    async def close(self) -> None:
        """Close the file and end the thread."""
        await self._thread.close()


def _add(connection: sqlite3.Connection, batch: Batch) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute("SELECT number FROM writers WHERE writer = ?", (batch.writer,)).fetchone()
        if row is not None and row[0] >= batch.number:
            return
        numbered = "INSERT OR REPLACE INTO writers (writer, number, day) VALUES (?, ?, ?)"
        connection.execute(numbered, (batch.writer, batch.number, batch.today))
        connection.executemany(_ADD, [(*place, *sums.to_dict().values()) for place, sums in batch.rows.items()])
        connection.execute("DELETE FROM sums WHERE day < ?", (batch.oldest_day,))
        connection.execute("DELETE FROM writers WHERE day < ?", (go_back(batch.today, WRITER_DAYS),))
