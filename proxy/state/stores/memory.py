"""Summaries in this process: the least recently used are forgotten first, the unused after a while."""

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from proxy.lru import BytesLRU

MAX_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Entry:
    sealed: bytes
    expires_at: float


@dataclass(frozen=True, slots=True)
class _Lease:
    number: int
    expires_at: float


class MemoryStore:
    """A SummaryStore bounded by bytes.

    Reading a summary prolongs its life, unless `renews` is false: then it lives for `ttl_seconds` from when it came.
    """

    name = "memory"

    def __init__(
        self,
        *,
        ttl_seconds: float = math.inf,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
        renews: bool = True,
        first_lease: int = 1,
    ) -> None:
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._renews = renews
        self._entries: BytesLRU[str, _Entry] = BytesLRU(
            max_bytes, lambda summary_id, entry: len(summary_id) + len(entry.sealed)
        )
        self._leases: dict[str, _Lease] = {}
        self._numbers = itertools.count(first_lease)

    async def get(self, summary_id: str) -> bytes | None:
        """The summary under an id, if it is there."""
        return self._use(summary_id)

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        """Keep a summary unless the id has one. One that is larger than the store is returned, but not kept."""
        kept = self._use(summary_id)
        if kept is not None:
            return kept
        holder = self._find_lease(summary_id)
        if lease is not None and holder is not None and holder.number != lease:
            return None
        self.replace(summary_id, sealed)
        return sealed

    def replace(self, summary_id: str, sealed: bytes) -> None:
        """Keep a summary whatever the id had: for who knows from elsewhere which one holds."""
        self._entries[summary_id] = _Entry(sealed, self._clock() + self._ttl_seconds)

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        """A lease, unless another holds."""
        if self._find_lease(summary_id) is not None:
            return None
        now = self._clock()
        self._leases = {name: lease for name, lease in self._leases.items() if lease.expires_at > now}
        lease = _Lease(next(self._numbers), now + seconds)
        self._leases[summary_id] = lease
        return lease.number

    async def release(self, summary_id: str, lease: int) -> None:
        """Give a lease back."""
        holder = self._find_lease(summary_id)
        if holder is not None and holder.number == lease:
            del self._leases[summary_id]

    async def close(self) -> None:
        """Nothing to let go of."""

    def _use(self, summary_id: str) -> bytes | None:
        entry = self._entries.get(summary_id)
        if entry is None or entry.expires_at <= self._clock():
            return None
        if self._renews:
            self.replace(summary_id, entry.sealed)
        return entry.sealed

    def _find_lease(self, summary_id: str) -> _Lease | None:
        """The lease that holds now."""
        lease = self._leases.get(summary_id)
        return lease if lease is not None and lease.expires_at > self._clock() else None
