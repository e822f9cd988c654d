"""Memory in front of a durable store, and in its place while that is out.

Law: no request fails because a store does, and none waits for one that is known to be out. What was kept meanwhile is
written through when it is back; where another process has written first, that holds from then on.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from proxy.state.stores.memory import MemoryStore
from proxy.state.stores.store import StoreError, SummaryStore
from proxy.tasks import Tasks

T = TypeVar("T")

FRONT_SHARE = 0.5
"""Of a summary's life; then the durable store is asked again, and so learns that the summary is still in use."""
FIRST_STAND_IN_LEASE = 1 << 62
"""Larger than any lease of a durable store: a lease tells who granted it."""
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0
PROBE_ID = "probe"
PROBE_SECONDS = 1.0
MAX_UNWRITTEN = 65536


class LayeredStore:
    """A SummaryStore of two. It goes by the durable one's name.

    `on_error` is called with the name once for each operation of the durable store that failed. So many summaries of an
    outage as `max_unwritten` are written through after it.
    """

    def __init__(
        self,
        durable: SummaryStore,
        *,
        ttl_seconds: float,
        on_error: Callable[[str], None],
        log: Any,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = durable.name
        self._durable = durable
        self._memory = MemoryStore(
            ttl_seconds=FRONT_SHARE * ttl_seconds, clock=clock, renews=False, first_lease=FIRST_STAND_IN_LEASE
        )
        self._on_error = on_error
        self._log = log
        self._sleep = sleep
        self._unwritten: dict[str, None] = {}
        self.max_unwritten = MAX_UNWRITTEN
        self._tasks = Tasks(lambda error: log.error("store_fault", error=type(error).__name__))
        """Only a recovery: while one is under way, the durable store is out."""

    async def get(self, summary_id: str) -> bytes | None:
        """The summary under an id: memory's, else the durable store's."""
        sealed = await self._memory.get(summary_id)
        if sealed is not None:
            return sealed
        return self._hold(summary_id, await self._ask(lambda store: store.get(summary_id)))

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        """Keep a summary unless the id has one."""

        async def keep(store: SummaryStore) -> bytes | None:
            if store is self._durable:
                is_own = lease is not None and lease < FIRST_STAND_IN_LEASE
                return await store.put(summary_id, sealed, lease if is_own else None)
            self._write_later(summary_id)
            return await store.put(summary_id, sealed)

        return self._hold(summary_id, await self._ask(keep))

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        """A lease, unless another holds; while the durable store is out, one among the callers of this process."""
        return await self._ask(lambda store: store.claim(summary_id, seconds))

    async def renew(self, summary_id: str, lease: int, seconds: float) -> bool:
        """Prolong a lease at the store that granted it; that is not known to hold while this store is out."""
        if lease >= FIRST_STAND_IN_LEASE:
            return await self._memory.renew(summary_id, lease, seconds)
        return await self._ask(lambda store: store.renew(summary_id, lease, seconds))

    async def release(self, summary_id: str, lease: int) -> None:
        """Give a lease back to the store that granted it."""
        if lease >= FIRST_STAND_IN_LEASE:
            await self._memory.release(summary_id, lease)
        else:
            await self._ask(lambda store: store.release(summary_id, lease))

    async def settle(self) -> None:
        """Wait until the durable store, if it is out, has answered again and has what it missed."""
        await self._tasks.settle()

    async def close(self) -> None:
        """Give up waiting for the durable store, and let go of it."""
        await self._tasks.close()
        with suppress(StoreError):
            await self._durable.close()

    async def _ask(self, operation: Callable[[SummaryStore], Awaitable[T]]) -> T:
        """What the durable store answers; while it is out, what memory does."""
        if self._tasks.is_idle:
            try:
                return await operation(self._durable)
            except StoreError as error:
                self._stand_in(error)
        return await operation(self._memory)

    def _hold(self, summary_id: str, kept: bytes | None) -> bytes | None:
        """Have in memory, too, what the durable store has."""
        if kept is not None:
            self._memory.replace(summary_id, kept)
        return kept

    def _write_later(self, summary_id: str) -> None:
        """Write a summary through later. Beyond a bound the oldest are not: losing a text costs only a new one."""
        self._unwritten[summary_id] = None
        if len(self._unwritten) > self.max_unwritten:
            del self._unwritten[next(iter(self._unwritten))]

    def _stand_in(self, error: StoreError) -> None:
        """From here on memory stands in, until the durable store answers again."""
        self._on_error(self.name)
        if self._tasks.is_idle:
            self._log.warning("store_unreachable", store=self.name, reason=error.fault)
            _ = self._tasks.start(self._recover())

    async def _recover(self) -> None:
        """Try again and again, with growing pauses, until the durable store answers and has what it missed."""
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            await self._sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, MAX_PAUSE_SECONDS)
            try:
                await self._probe()
                await self._write_through()
            except StoreError:
                self._on_error(self.name)
            else:
                self._log.info("store_reachable", store=self.name)
                return

    async def _probe(self) -> None:
        """Write something small: a full disk can be read."""
        lease = await self._durable.claim(PROBE_ID, PROBE_SECONDS)
        if lease is not None:
            await self._durable.release(PROBE_ID, lease)

    async def _write_through(self) -> None:
        """Put what was kept meanwhile into the durable store, and take over what that has instead."""
        while self._unwritten:
            summary_id = next(iter(self._unwritten))
            sealed = await self._memory.get(summary_id)
            if sealed is not None:
                self._hold(summary_id, await self._durable.put(summary_id, sealed))
            self._unwritten.pop(summary_id, None)
