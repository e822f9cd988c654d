"""The right to write a summary, which holds for as long as its writer is at it.

Law: a lease is short, and renewed while the call is under way: a process that dies holds nobody up for longer than one
lease. That a lease could not be renewed ends no call: the store decides whose text is kept.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from proxy.state.stores import StoreError, SummaryStore
from proxy.tasks import Tasks

LEASE_SECONDS = 6.0
"""What others wait for the summary of a process that has died."""
RENEW_SECONDS = 1.5
"""Between two renewals. One may fail after the 2 seconds that a store may take to answer: the next is still in time."""


@asynccontextmanager
async def hold(
    store: SummaryStore, summary_id: str, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> AsyncIterator[int | None]:
    """The lease of a summary, renewed until the block ends and then given back; None while another holds it."""
    lease = await store.claim(summary_id, LEASE_SECONDS)
    if lease is None:
        yield None
        return
    tasks = Tasks(lambda _: None)  # the call goes on, whatever becomes of its lease
    _ = tasks.start(_renew(store, summary_id, lease, sleep))
    try:
        yield lease
    finally:
        await tasks.close()
        await store.release(summary_id, lease)


async def _renew(store: SummaryStore, summary_id: str, lease: int, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Prolong a lease again and again. One that seems lost may hold still: its store may be out."""
    while True:
        await sleep(RENEW_SECONDS)
        with suppress(StoreError):
            await store.renew(summary_id, lease, LEASE_SECONDS)
