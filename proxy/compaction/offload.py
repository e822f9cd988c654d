"""Where work runs: small pieces on the event loop, larger ones in threads, each size in threads of its own.

Law: small work never waits for large work. Tenants take turns, and no tenant holds all threads. Work whose request has
gone is not begun.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from trimtab.proxy.compaction.fair_queue import FairQueue
from trimtab.rules.results.work import LargeWorkError

INLINE_BYTES = 8 * 1024
"""More uncounted JSON than this is counted in a thread. Measured: counting takes 50 to 100 ms a megabyte of usual text,
and 300 of one long word or 440 of rare characters; 32 KB of those held the loop for 13 ms."""
THREAD_BYTES = INLINE_BYTES + 1
"""The least size of what is done in a thread."""
LARGE_BODY_BYTES = 1024 * 1024
"""A larger body is not even split on the loop. Chosen: splitting takes some milliseconds a megabyte."""
SMALL_BODY_BYTES, SMALL_MESSAGES = 2 * 1024, 16
"""Up to this size, counting a whole body takes no longer than finding out which parts are known. Chosen by profiling
the path of a small request; a new message takes 0.06 ms."""
MANY_MESSAGES = 1000
"""A longer transcript is planned in a thread, even if all of it is known. Chosen: looking up each message adds up."""
KNOWN_FACTOR = 16
"""A byte that must be counted takes this many times as long as a known one. Measured roughly."""
RULES = 4
"""Number of rules that may process the same text. Each takes the text's length from the allowance."""
SWITCH_SECONDS = 0.0005
"""Interval after which a thread gives the interpreter to a waiting one. Python's default is ten times longer.

Measured on two cores with Python 3.11, while four large pieces of work ran: a request of 2 kB took 8 ms instead of 26,
and one of 60 kB took 40 ms instead of 73.
"""

T = TypeVar("T")


def weigh_known(size_bytes: int) -> int:
    """The size, for scheduling, of work on JSON that was counted before; never small enough to run on the loop."""
    return max(size_bytes // KNOWN_FACTOR, THREAD_BYTES)


class BusyError(Exception):
    """No thread was free for the work in time."""


class Lane(msgspec.Struct):
    """The queue of one request's work: `name` is its tenant's; it may still wait `left_seconds` in all."""

    name: str
    left_seconds: float


class FairPool:
    """Threads for which tenants take turns."""

    def __init__(self, name: str, threads: int, *, threads_per_lane: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"trimtab-{name}")
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(threads, places_per_lane=threads_per_lane)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def run(self, lane: Lane, work: Callable[[], T]) -> T:
        """Run the work in a thread, in its turn, and return its result.

        Raises BusyError if its turn does not come while the lane has time left. Also raises what the work raises.
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
                self._end(lane.name)  # its turn came just as the request was cancelled
        begun.add_done_callback(partial(self._end_soon, loop, lane.name))
        try:
            return await asyncio.wrap_future(begun)
        finally:
            # Else its error, this frame and the work would hold each other until the next garbage collection.
            begun = None

    def close(self) -> None:
        """Start no more work. Running work ends in its thread; its result is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        while (turn := self._queue.begin()) is not None:
            if not turn.done():
                turn.set_result(None)

    def _end(self, lane: str) -> None:
        self._queue.end(lane)
        self._begin()

    def _end_soon(self, loop: asyncio.AbstractEventLoop, lane: str, _: Future[Any]) -> None:
        """Called in the worker thread: free the place, even if the request has gone."""
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._end, lane)


async def _wait(turn: asyncio.Future[None], lane: Lane) -> None:
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


class Tier(msgspec.Struct, frozen=True):
    """Threads for work on at most `most_bytes` of uncounted JSON (None: any size), and how many one tenant may hold."""

    name: str
    most_bytes: int | None
    threads: int
    threads_per_tenant: int


TIERS = (
    Tier("small", 256 * 1024, 3, 2),
    Tier("medium", 2 * 1024 * 1024, 2, 1),
    Tier("large", None, 2, 1),
)
"""Work in these tiers takes at most 0.1 s, 0.5 s, and up to 30 s for 32 MB.

Chosen: all threads share one interpreter, so more threads would not be faster and would slow down everything else.
"""


class Workers:
    def __init__(self, tiers: Sequence[Tier] = TIERS) -> None:
        self.pools = tuple(
            (tier.most_bytes, FairPool(tier.name, tier.threads, threads_per_lane=tier.threads_per_tenant))
            for tier in tiers
        )

    async def run(self, lane: Lane, work: Callable[[], T], *, size_bytes: int) -> T:
        if size_bytes <= INLINE_BYTES:
            return work()
        return await self._find(size_bytes)[0][1].run(lane, work)

    async def run_bounded(self, lane: Lane, work: Callable[..., T], *, size_bytes: int) -> T:
        """Run work of at least this size; if it turns out to be larger, start it again in the next tier.

        work: takes `max_chars`, a bound on the characters it may process, and raises LargeWorkError above it.

        Raises BusyError.
        """
        if size_bytes <= INLINE_BYTES:
            try:
                return work(max_chars=INLINE_BYTES)
            except LargeWorkError:
                size_bytes = THREAD_BYTES  # at least
        *smaller, (_, largest) = self._find(size_bytes)
        for most_bytes, pool in smaller:
            with suppress(LargeWorkError):
                return await pool.run(lane, partial(work, max_chars=RULES * (most_bytes or 0)))
        return await largest.run(lane, partial(work, max_chars=None))

    def _find(self, size_bytes: int) -> "Sequence[tuple[int | None, FairPool]]":
        return [(most, pool) for most, pool in self.pools if most is None or size_bytes <= most]

    def close(self) -> None:
        for _, pool in self.pools:
            pool.close()
