"""Memory in front of a durable store, and in its place while that is out.

Law: no request fails because a store does, and none waits for one that is known to be out. What was kept meanwhile is
written through when it is back; where another process has written first, that holds from then on.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from proxy.state.stores.memory import MemoryStore
from proxy.state.stores.store import StoreError, SummaryStore

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

    `on_error` is called with the name once for each operation of the durable store that failed.
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
        self._recovery: asyncio.Task[None] | None = None

    async def get(self, summary_id: str) -> bytes | None:
        """The summary under an id: memory's, else the durable store's."""
        sealed = await self._memory.get(summary_id)
        if sealed is not None:
            return sealed
        sealed = await self._ask(
            partial(self._durable.get, summary_id),
            otherwise=partial(self._memory.get, summary_id),
        )
        if sealed is not None:
            self._memory.replace(summary_id, sealed)
        return sealed

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        """Keep a summary unless the id has one."""
        durable_lease = lease if lease is not None and lease < FIRST_STAND_IN_LEASE else None
        kept = await self._ask(
            partial(self._durable.put, summary_id, sealed, durable_lease),
            otherwise=partial(self._keep_for_later, summary_id, sealed),
        )
        if kept is not None:
            self._memory.replace(summary_id, kept)
        return kept

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        """A lease, unless another holds; while the durable store is out, one among the callers of this process."""
        return await self._ask(
            partial(self._durable.claim, summary_id, seconds),
            otherwise=partial(self._memory.claim, summary_id, seconds),
        )

    async def release(self, summary_id: str, lease: int) -> None:
        """Give a lease back to the store that granted it."""
        if lease >= FIRST_STAND_IN_LEASE:
            await self._memory.release(summary_id, lease)
        else:
            await self._ask(
                partial(self._durable.release, summary_id, lease),
                otherwise=partial(self._memory.release, summary_id, lease),
            )

    async def close(self) -> None:
        """Give up waiting for the durable store, and let go of it."""
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)
        with suppress(StoreError):
            await self._durable.close()

    @property
    def _is_out(self) -> bool:
        return self._recovery is not None and not self._recovery.done()

    async def _ask(self, operation: Callable[[], Awaitable[T]], *, otherwise: Callable[[], Awaitable[T]]) -> T:
        """What the durable store answers; while it is out, what memory does."""
        if not self._is_out:
            try:
                return await operation()
            except StoreError as error:
                self._stand_in(error)
        return await otherwise()

    async def _keep_for_later(self, summary_id: str, sealed: bytes) -> bytes | None:
        """Keep a summary in memory, to be written through. Beyond a bound the oldest are not: a text is no loss."""
        self._unwritten[summary_id] = None
        if len(self._unwritten) > MAX_UNWRITTEN:
            del self._unwritten[next(iter(self._unwritten))]
        return await self._memory.put(summary_id, sealed)

    def _stand_in(self, error: StoreError) -> None:
        """From here on memory stands in, until the durable store answers again."""
        self._on_error(self.name)
        if not self._is_out:
            self._log.warning("store_unreachable", store=self.name, reason=error.fault)
            self._recovery = asyncio.get_running_loop().create_task(self._recover())

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
            kept = await self._durable.put(summary_id, sealed) if sealed is not None else None
            if kept is not None:
                self._memory.replace(summary_id, kept)
            self._unwritten.pop(summary_id, None)
