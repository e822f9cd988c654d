"""Where work is done: small pieces on the loop, large ones in a thread."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from rules.results.work import LargeWorkError

INLINE_BYTES = 32 * 1024
"""More uncounted JSON than this is counted in a thread: counting takes 50 to 100 ms a megabyte."""
LARGE_BODY_BYTES = 1024 * 1024
"""A larger body is not even split on the loop."""
MANY_MESSAGES = 1000
"""A transcript of more is planned in a thread, however well it is known."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class BoundedWork(Protocol[T_co]):
    """Work that can be told how many characters it may work through, and raises LargeWorkError at more."""

    def __call__(self, *, max_chars: int | None) -> T_co:
        """What the work returns."""


async def run_work(work: Callable[[], T], *, in_thread: bool) -> T:
    """What the work returns."""
    return await asyncio.to_thread(work) if in_thread else work()


async def run_bounded(work: BoundedWork[T], *, in_thread: bool) -> T:
    """What the work returns; begun on the loop, and once more in a thread where it turns out to be large."""
    if not in_thread:
        try:
            return work(max_chars=INLINE_BYTES)
        except LargeWorkError:
            pass
    return await asyncio.to_thread(work, max_chars=None)
