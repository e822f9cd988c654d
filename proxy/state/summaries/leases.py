"""Leases: the right to write a summary.

Law: a lease is short and is renewed while the call runs, so a dead process holds up others for one lease at most. A
call goes on even if its lease cannot be renewed: the store decides whose text is kept.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from proxy.state.stores import StoreError, SummaryStore
from proxy.tasks import Tasks

LEASE_SECONDS = 6.0
"""Others wait this long for a process that has died. Chosen: three renewals may fail."""
RENEW_SECONDS = 1.5
"""Between two renewals. Chosen: if one fails after the store's time limit of 2 s, the next one is still in time."""


@asynccontextmanager
async def hold(
    store: SummaryStore, summary_id: str, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> AsyncIterator[int | None]:
    """Hold a summary's lease, renewed until the block ends. Yields None if another process holds it."""
    lease = await store.claim(summary_id, LEASE_SECONDS)
    if lease is None:
        yield None
        return
    tasks = Tasks(lambda _: None)  # the call goes on without its lease
    _ = tasks.start(_renew(store, summary_id, lease, sleep))
    try:
        yield lease
    finally:
        await tasks.close()
        await store.release(summary_id, lease)


async def _renew(store: SummaryStore, summary_id: str, lease: int, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Renew a lease until cancelled. After a store error it tries again, because the lease may still be valid."""
    while True:
        await sleep(RENEW_SECONDS)
        with suppress(StoreError):
            await store.renew(summary_id, lease, LEASE_SECONDS)
