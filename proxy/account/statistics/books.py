"""Keeps the sums of this process until they are in the store.

Law: a request never waits for the store. While the store is out, sums stay here, and nothing is counted twice.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from proxy.account.statistics.sessions import Sessions
from proxy.account.statistics.store import Batch, MemoryStatistics, StatisticsStore
from proxy.account.statistics.sums import NO_CLIENT, Place, Sums, go_back, name_day
from proxy.state.stores.store import StoreError
from proxy.tasks import Tasks

FLUSH_SECONDS = 5.0
"""Between two writes. Chosen: a killed process loses at most this much; the disk is written to rarely."""
MAX_CLIENT_CHARS = 128
"""A longer name is cut. Chosen: longer than any name that a person gives."""
MAX_PLACES = 4096
"""Places of sums that wait for the store; later ones are not counted. Chosen: far above the models and clients of the
days that an outage lasts."""


class Books:
    """The sums of this process. `clock` is the time of day. Start it in a running loop, and close it at the end.

    on_error: called with the store's name for each failed write.
    """

    def __init__(
        self,
        store: StatisticsStore | None = None,
        *,
        on_error: Callable[[str], None] = lambda _: None,
        log: Any = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.store: StatisticsStore = MemoryStatistics() if store is None else store
        self.clock = clock
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
