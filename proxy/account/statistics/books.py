"""Counts what requests and summaries cost: in the metrics, and in sums of this process until they are in the store.

Law: both get the same figures. Whoever causes a summary bears its cost: it is added to the model of the request. A
request never waits for the store. While the store is out, sums stay here, and nothing is counted twice. The store is
beside that of the summaries: in memory, in a file beside theirs, or on the same server.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from proxy.account.history.kept import History
from proxy.account.statistics.sessions import Sessions
from proxy.account.statistics.store import (
    NO_CLIENT,
    Batch,
    MemoryStatistics,
    Place,
    SqliteStatistics,
    StatisticsStore,
    Sums,
    go_back,
    name_day,
)
from proxy.config.schema import Config
from proxy.state.catalogue.costs import NANODOLLARS, Bill, Tokens, price
from proxy.state.catalogue.prices import PriceList
from proxy.state.stores.opening import data_directory, require_store
from proxy.state.stores.store import StoreError
from proxy.tasks import Tasks
from proxy.telemetry.metrics import Metrics

FILE_NAME = "statistics.sqlite3"
FLUSH_SECONDS = 5.0
"""Between two writes. Chosen: a killed process loses at most this much; the disk is written to rarely."""
MAX_CLIENT_CHARS = 128
"""A longer name is cut. Chosen: longer than any name that a person gives."""
MAX_PLACES = 4096
"""Places of sums that wait for the store; later ones are not counted. Chosen: far above the models and clients of the
days that an outage lasts."""


class Books:
    """The sums of this process. `clock` is the time of day. Start it in a running loop, and close it at the end.

    on_error: called with the store's name for each failed write. history: is told of summaries, if there is one.
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
        self._metrics = metrics
        self.sessions = Sessions()
        self._on_error = on_error
        self._log = log
        self._sleep = sleep
        self._rows: dict[Place, Sums] = {}
        self._batch: Batch | None = None
        self._number = 0
        self._writer = secrets.token_hex(8)
        self._is_out = False
        self._writing = asyncio.Lock()
        self._tasks = Tasks(self._note_fault)

    def book(self, model: str, client: str, sums: Sums) -> None:
        """Add sums to those of today."""
        place = Place(name_day(self.clock()), model, client[:MAX_CLIENT_CHARS] or NO_CLIENT)
        known = self._rows.get(place)
        if known is not None or len(self._rows) < MAX_PLACES:
            self._rows[place] = sums if known is None else known + sums

    def charge(self, model: str, client: str, bill: Bill) -> None:
        """Count an answered request. `model`: its label in the metrics."""
        self.book(model, client, Sums.of_bill(bill))
        if bill.cost is not None and bill.without_cost is not None:
            cost = bill.cost
            parts = (
                ("fresh", cost.fresh),
                ("cached", cost.cached),
                ("written", cost.written),
                ("completion", cost.completion),
            )
            for part, nanodollars in parts:
                if nanodollars:
                    self._metrics.cost_usd[model, part] += nanodollars / NANODOLLARS
            self._metrics.cost_without_usd[model] += bill.without_cost.total / NANODOLLARS

    def charge_summary(
        self, model: str, client: str, tokens: Tokens, prices: PriceList | None, session: str = ""
    ) -> None:
        """Count an answered call for a summary of a session.

        prices: those of the model that wrote it; None if not known.
        """
        cost = None if prices is None else price(tokens, prices)
        self.book(model, client, Sums.of_summary(tokens, cost))
        if cost is not None:
            if cost.total:
                self._metrics.cost_usd[model, "summary"] += cost.total / NANODOLLARS
            if self.history is not None:
                self.history.add_summary(time.time(), cost.total, model, client, session)

    def start(self) -> None:
        """Begin to write to the store every FLUSH_SECONDS."""
        _ = self._tasks.start(self._write_on())

    async def flush(self) -> None:
        """Write what is not in the store yet. A batch that failed is written again, unchanged, before later sums."""
        try:
            async with self._writing:
                while (batch := self._take()) is not None:
                    await self.store.add(batch)
                    self._batch, self._is_out = None, False
        except StoreError as error:
            self._on_error(self.store.name)
            if not self._is_out and self._log is not None:
                self._log.warning("statistics_unwritten", store=self.store.name, reason=error.fault)
            self._is_out = True

    async def read(self, days: int) -> Sums:
        """The sums of the last days, today included, in UTC; those of this process up to now. Raises StoreError."""
        async with self._writing:  # so that no batch is on its way
            today = name_day(self.clock())
            first_day = go_back(today, days - 1)
            rows = await self.store.read(first_day, today)
            waiting = self._rows.items()
            return sum([*rows.values(), *(sums for place, sums in waiting if place.day >= first_day)], Sums())

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

    def _note_fault(self, error: BaseException) -> None:
        if self._log is not None:
            self._log.error("store_fault", error=type(error).__name__)


def find_file(config: Config) -> Path | None:
    """The file with the statistics; None for a store in memory or on a server."""
    scheme, _, rest = config.store.partition("://")
    if scheme != "sqlite":
        return None
    return Path(f"{rest[1:]}.statistics").expanduser() if rest else data_directory() / FILE_NAME


def open_statistics(config: Config, log: Any) -> StatisticsStore:
    """The store of statistics. Raises ConfigError if the Redis package is missing or the URL is unusable."""
    if config.store == "memory":
        return MemoryStatistics()
    file = find_file(config)
    if file is not None:
        return SqliteStatistics(file, log=log)
    require_store(config)
    from proxy.account.statistics.redis import RedisStatistics  # noqa: PLC0415  an optional package

    return RedisStatistics(config.store)
