"""Counts what requests and summaries cost, by day, model and client: in metrics, and in sums that outlive the process.

Law: both get the same figures. Whoever causes a summary bears its cost: it is added to the model of the request. All
figures are whole numbers that only grow, so sums of sums are exact in any order. A batch counts once, however often it
is written, because a store that did not answer may have kept it. A request never waits for the store: while it is out,
sums stay here.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import date, timedelta
from functools import lru_cache
from operator import add, attrgetter
from typing import Any, NamedTuple, Protocol, Self

import msgspec

from trimtab.proxy.account.history.kept import History
from trimtab.proxy.account.outcome import Prompt
from trimtab.proxy.catalogue.prices import NANODOLLARS, Bill, Cost, PriceList, Tokens, price
from trimtab.proxy.store.store import StoreError
from trimtab.proxy.tasks import Tasks
from trimtab.proxy.telemetry.metrics import Metrics

FLUSH_SECONDS = 5.0  # Chosen: a killed process loses at most this much; the disk is written to rarely.
MAX_CLIENT_CHARS = 128  # A longer name is cut. Chosen: longer than any name that a person gives.
MAX_PLACES = 4096  # Sums that wait; later ones are not counted. Chosen: far above models and clients of days of outage.
DAY_SECONDS = 86400  # source: 24 hours
_FIRST_DAY = date(1970, 1, 1).toordinal()
KEPT_DAYS = 366  # Sums of older days are deleted. Source: the promise to keep them for a year.
MOST = 2**63  # No figure reaches it. Source: the largest number in SQLite and in Redis.
NO_CLIENT = "-"  # The client of requests whose key has no name


class Place(NamedTuple):
    """Where sums belong. day: in UTC, as `2026-01-31`. model: the metrics' label. client: the name of its key."""

    day: str
    model: str
    client: str

    @classmethod
    def read(cls, *names: Any) -> Self:
        """The place with these names. Raises ValueError if they are none."""
        if len(names) != len(cls._fields) or not all(isinstance(name, str) for name in names):
            raise ValueError("a name in it is not one of trimtab's")
        return cls(*names)


class Sums(msgspec.Struct, frozen=True):
    """Sums over requests. `_nanodollars` is money, `_tokens` the model's own tokens.

    requests: those that were answered. unpriced_requests: of which no price in dollars is known; their money is missing
        here. estimated_requests: of which the upstream did not report all tokens.
    original_tokens: the prompts as the clients sent them. sent_tokens: as forwarded; both as trimtab counts them, as in
        the metrics. cached_tokens, written_tokens, completion_tokens: as the upstream reports them.
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
            raise ValueError("a figure in it is not one of trimtab's")
        return cls(**figures)

    @classmethod
    def of_bill(cls, bill: Bill, prompt: Prompt | None = None) -> Self:
        """The sums of one request. prompt: as it counts in all sums of tokens; None for that of the bill."""
        cost, without = bill.cost or Cost(), bill.without_cost or Cost()
        original_tokens, sent_tokens = prompt or (bill.without.prompt, bill.tokens.prompt)
        return cls(
            requests=1,
            unpriced_requests=int(bill.cost is None),
            estimated_requests=int(bill.is_estimated),
            original_tokens=original_tokens,
            sent_tokens=sent_tokens,
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
        return cls(
            summaries=1,
            unpriced_summaries=int(cost is None),
            summary_tokens=tokens.prompt + tokens.completion,
            summary_nanodollars=0 if cost is None else cost.total,
        )

    @property
    def cost_nanodollars(self) -> int:
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
        return dict(zip(NAMES, _read_all(self), strict=True))


NAMES = Sums.__struct_fields__  # The names of all figures, in order
_read_all = attrgetter(*NAMES)

Rows = Mapping[Place, Sums]


def name_day(seconds: float) -> str:
    """The day of a time in seconds since 1970, in UTC."""
    return _name_day(int(seconds // DAY_SECONDS))


@lru_cache(8)
def _name_day(number: int) -> str:
    return date.fromordinal(_FIRST_DAY + number).isoformat()


def go_back(day: str, days: int) -> str:
    return (date.fromisoformat(day) - timedelta(days)).isoformat()


class Batch(msgspec.Struct, frozen=True):
    """Sums to add. `writer` has written all batches before this `number`. `today`: the day of the writing, in UTC."""

    writer: str
    number: int
    today: str
    rows: Rows

    @property
    def oldest_day(self) -> str:
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
    name = "memory"

    def __init__(self) -> None:
        self._rows: dict[Place, Sums] = {}
        self._numbers: dict[str, int] = {}

    async def add(self, batch: Batch) -> None:
        if batch.number > self._numbers.get(batch.writer, 0):
            self._numbers[batch.writer] = batch.number
            for place, sums in batch.rows.items():
                self._rows[place] = self._rows.get(place, Sums()) + sums
            self._rows = {place: sums for place, sums in self._rows.items() if place.day >= batch.oldest_day}

    async def read(self, first_day: str, today: str) -> dict[Place, Sums]:
        return {place: sums for place, sums in sorted(self._rows.items()) if first_day <= place.day <= today}

    async def close(self) -> None:
        """Do nothing; there is nothing to release."""


class Books:
    """The sums of this process. Start it in a running loop, and close it at the end.

    on_error: gets the store's name for each failed write. history: is told of summaries. on_booked: is told of all that
    is booked. after_writing: is called after each writing. is_out: the last writing failed.
    """

    def __init__(
        self,
        metrics: Metrics,
        store: StatisticsStore | None = None,
        *,
        on_error: Callable[[str], None] = lambda _: None,
        log: Any = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.store: StatisticsStore = MemoryStatistics() if store is None else store
        self.clock = clock
        self.history: History | None = None
        self.on_booked: Callable[[Place, Sums], None] | None = None
        self.after_writing: Callable[[], Awaitable[None]] | None = None
        self.is_out = False
        self._metrics = metrics
        self._on_error = on_error
        self._log = log
        self._sleep = sleep
        self._rows: dict[Place, Sums] = {}
        self._batch: Batch | None = None
        self._number = 0
        self._writer = secrets.token_hex(8)
        self._writing = asyncio.Lock()
        self._tasks = Tasks(lambda error: log and log.error("store_fault", error=type(error).__name__))

    def book(self, model: str, client: str, sums: Sums) -> None:
        place = Place(name_day(self.clock()), model, client[:MAX_CLIENT_CHARS] or NO_CLIENT)
        known = self._rows.get(place)
        if known is not None or len(self._rows) < MAX_PLACES:
            self._rows[place] = sums if known is None else known + sums
        if self.on_booked is not None:
            self.on_booked(place, sums)

    def charge(self, model: str, client: str, bill: Bill, prompt: Prompt | None = None) -> None:
        """Count an answered request. `model`: its label in the metrics. prompt: as for `Sums.of_bill`."""
        self.book(model, client, Sums.of_bill(bill, prompt))
        if bill.cost is not None and bill.without_cost is not None:
            for part in ("fresh", "cached", "written", "completion"):
                if nanodollars := getattr(bill.cost, part):
                    self._metrics.cost_usd[model, part] += nanodollars / NANODOLLARS
            self._metrics.cost_without_usd[model] += bill.without_cost.total / NANODOLLARS

    def charge_summary(
        self, model: str, client: str, tokens: Tokens, prices: PriceList | None, session: str = ""
    ) -> None:
        """Count an answered call for a summary. prices: of the model that wrote it; None if not known."""
        cost = None if prices is None else price(tokens, prices)
        self.book(model, client, Sums.of_summary(tokens, cost))
        if cost is not None:
            if cost.total:
                self._metrics.cost_usd[model, "summary"] += cost.total / NANODOLLARS
            if self.history is not None:
                self.history.add_summary(time.time(), cost.total, model, client, session)

    def start(self) -> None:
        _ = self._tasks.start(self._write_on())

    async def flush(self) -> None:
        """Write what is not in the store yet. A batch that failed is written again, unchanged, before later sums."""
        try:
            async with self._writing:
                while (batch := self._take()) is not None:
                    await self.store.add(batch)
                    self._batch, self.is_out = None, False
        except StoreError as error:
            self._on_error(self.store.name)
            if not self.is_out and self._log is not None:
                self._log.warning("statistics_unwritten", store=self.store.name, reason=error.fault)
            self.is_out = True

    async def read(self, days: int) -> Sums:
        """The sums of the last days, today included, in UTC; those of this process up to now. Raises StoreError."""
        rows = await self.read_rows(go_back(name_day(self.clock()), days - 1))
        return sum((sums for _, sums in rows), Sums())

    async def read_rows(self, first_day: str) -> list[tuple[Place, Sums]]:
        """The sums since a day, in UTC, by place; a place may come twice. Raises StoreError."""
        async with self._writing:  # so that no batch is on its way
            rows = await self.store.read(first_day, name_day(self.clock()))
            return [*rows.items(), *((place, sums) for place, sums in self._rows.items() if place.day >= first_day)]

    async def close(self) -> None:
        """Write the rest, and close the store. What cannot be written now is lost."""
        await self._tasks.close()
        await self.flush()
        try:
            await self.store.close()
        except StoreError:
            self._on_error(self.store.name)

    def _take(self) -> Batch | None:
        """The batch that waits, else a new one; None if there is nothing to write."""
        if self._batch is None and self._rows:
            self._number += 1
            self._batch = Batch(self._writer, self._number, name_day(self.clock()), self._rows)
            self._rows = {}
        return self._batch

    async def _write_on(self) -> None:
        while True:
            await self._sleep(FLUSH_SECONDS)
            await self.flush()
            if self.after_writing is not None:
                await self.after_writing()
