"""Where work is done: small pieces on the loop, large ones in a thread."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

INLINE_BYTES = 32 * 1024
"""More uncounted JSON than this is counted in a thread: counting takes 50 to 100 ms a megabyte."""
GLANCE_BYTES = 256 * 1024
"""A larger body is not even estimated on the loop: that takes 3 to 5 ms a megabyte."""
LARGE_BODY_BYTES = 1024 * 1024
"""A larger body is not even split on the loop."""
MANY_MESSAGES = 1000
"""A transcript of more is planned in a thread, however well it is known."""

T = TypeVar("T")


async def run_work(work: Callable[[], T], *, in_thread: bool) -> T:
    """What the work returns."""
    return await asyncio.to_thread(work) if in_thread else work()
