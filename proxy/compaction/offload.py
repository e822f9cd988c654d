"""Where work is done: small pieces on the loop, larger ones in threads, the largest in threads of their own.

Law: small work never waits for large work. Tenants take turns, and none holds all threads. Work that nobody waits for
any more is not begun.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from proxy.compaction.fair_queue import FairQueue
from rules.results.work import LargeWorkError

INLINE_BYTES = 32 * 1024
"""More uncounted JSON than this is counted in a thread: counting takes 50 to 100 ms a megabyte."""
LARGE_BODY_BYTES = 1024 * 1024
"""A larger body is not even split on the loop."""
MANY_MESSAGES = 1000
"""A transcript of more is planned in a thread, however well it is known."""
KNOWN_FACTOR = 16
"""So much faster is a byte that was seen before than one that is to be counted."""
RULES = 4
"""So many rules may work through the same text, each of which counts."""
SWITCH_SECONDS = 0.0005
"""After which a thread lets another have the interpreter that waits for it; Python's own is ten times that.

With four large pieces of work beside it, a request of 2 kB then takes 8 ms in place of 26, and one of 60 kB 40 in place
of 73. Measured on two cores with Python 3.11.
"""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def weigh_known(size_bytes: int) -> int:
    """The size of work on so much JSON that was counted before; never so small that it is done on the loop."""
    return max(size_bytes // KNOWN_FACTOR, INLINE_BYTES + 1)


class BusyError(Exception):
    """There was no thread for the work in time."""


class BoundedWork(Protocol[T_co]):
    """Work that can be told how many characters it may work through, and raises LargeWorkError at more."""

    def __call__(self, *, max_chars: int | None) -> T_co:
        """What the work returns."""


@dataclass(slots=True)
class Lane:
    """Where the work of one request waits: behind that of its tenant, for `left_seconds` in all."""

    name: str
    left_seconds: float


class FairPool:
    """Threads for which tenants take turns."""

    def __init__(self, name: str, threads: int, *, threads_per_lane: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"trimtab-{name}")
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(threads, places_per_lane=threads_per_lane)

    @property
    def waiting(self) -> int:
        """How many pieces of work wait for a thread."""
        return len(self._queue)

    async def run(self, lane: Lane, work: Callable[[], T]) -> T:
        """What the work returns, done in a thread in its turn.

        Raises BusyError if its turn does not come while the lane has time left, and what the work raises.
        """
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._queue.add(lane.name, turn)
        begun: Future[T] | None = None
        try:
            self._begin()
            await _wait(turn, lane)
            begun = self._threads.submit(work)
        finally:
            if begun is None and not self._queue.remove(lane.name, turn):
                self._end(lane.name)  # its turn came just as nobody waited any more
        begun.add_done_callback(partial(self._end_soon, loop, lane.name))
        try:
            return await asyncio.wrap_future(begun)
        finally:
            begun = None  # else an error that it holds would hold us and the work, until the next garbage collection

    def close(self) -> None:
        """Begin nothing more. Work that was begun ends in its thread, and nobody hears of it."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        while (turn := self._queue.begin()) is not None:
            if not turn.done():
                turn.set_result(None)

    def _end(self, lane: str) -> None:
        self._queue.end(lane)
        self._begin()

    def _end_soon(self, loop: asyncio.AbstractEventLoop, lane: str, _: Future[Any]) -> None:
        """In the thread that has done the work: its place is free, whoever has waited for it."""
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._end, lane)


async def _wait(turn: asyncio.Future[None], lane: Lane) -> None:
    """Until it is the lane's turn. Raises BusyError."""
    if turn.done():
        return
    loop = asyncio.get_running_loop()
    started = loop.time()
    try:
        async with asyncio.timeout(lane.left_seconds):
            await turn
    except TimeoutError as error:
        raise BusyError from error
    finally:
        lane.left_seconds = max(lane.left_seconds - (loop.time() - started), 0.0)


@dataclass(frozen=True, slots=True)
class Tier:
    """Threads for work of at most `most_bytes` of uncounted JSON, None for any, and how many a tenant may hold."""

    name: str
    most_bytes: int | None
    threads: int
    threads_per_tenant: int


TIERS = (
    Tier("small", 256 * 1024, 3, 2),
    Tier("medium", 2 * 1024 * 1024, 2, 1),
    Tier("large", None, 2, 1),
)
"""A tenth of a second at most, half a second, up to half a minute for 32 MB.

All share one interpreter: more threads would make none of them faster, and everything else slower.
"""


class Workers:
    """The threads of a proxy, by the size of the work that they do."""

    def __init__(self, tiers: Sequence[Tier] = TIERS) -> None:
        self.pools = tuple(
            (tier.most_bytes, FairPool(tier.name, tier.threads, threads_per_lane=tier.threads_per_tenant))
            for tier in tiers
        )

    async def run(self, lane: Lane, work: Callable[[], T], *, size_bytes: int) -> T:
        """What the work returns, done where there is room for so much. Raises BusyError."""
        if size_bytes <= INLINE_BYTES:
            return work()
        return await self._find(size_bytes)[0][1].run(lane, work)

    async def run_bounded(self, lane: Lane, work: BoundedWork[T], *, size_bytes: int) -> T:
        """The same for work of at least that size; begun once more elsewhere where it turns out to be larger."""
        if size_bytes <= INLINE_BYTES:
            with suppress(LargeWorkError):
                return work(max_chars=INLINE_BYTES)
        *smaller, (_, largest) = self._find(size_bytes)
        for most_bytes, pool in smaller:
            with suppress(LargeWorkError):
                return await pool.run(lane, partial(work, max_chars=RULES * (most_bytes or 0)))
        return await largest.run(lane, partial(work, max_chars=None))

    def _find(self, size_bytes: int) -> "Sequence[tuple[int | None, FairPool]]":
        """The pools for work of at least that size."""
        return [(most, pool) for most, pool in self.pools if most is None or size_bytes <= most]

    def close(self) -> None:
        """Begin nothing more."""
        for _, pool in self.pools:
            pool.close()
