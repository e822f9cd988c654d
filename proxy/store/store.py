"""What a store of summaries promises, and how it fails; and the store in this process.

Law: an error names the store and the kind of fault, in trimtab's words or those of the operating system. It never
quotes a library, whose text may contain a password or a URL.
"""

import itertools
import math
import os
import time
from collections.abc import Callable
from typing import Protocol

from trimtab.proxy.lru import BytesLRU

PREFIX = "trimtab:1:"  # what the keys of a server begin with


class StoreError(Exception):
    """A store cannot be reached or is damaged. `fault` says how, in a few words."""

    def __init__(self, store: str, fault: str) -> None:
        super().__init__(f"the {store} store failed: {fault}")
        self.fault = fault


def describe_fault(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number else "its answer cannot be read"


class SummaryStore(Protocol):
    """Encrypted summaries by id. The first writer wins, so the text that is forwarded for an id never changes.

    A process claims a summary before it requests one, so that only one of several pays for it. A lease is a number that
    grows from holder to holder. It ends unless it is renewed. A holder whose lease has ended cannot overwrite the
    summary of the next holder.
    """

    name: str

    async def get(self, summary_id: str) -> bytes | None:
        """The summary of an id, which counts as used now; None if there is none."""

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        """Keep a summary unless the id has one; returns what is kept, or None if another writer holds the lease."""

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        """A lease: the right to write this summary for this many seconds. None while another lease is valid."""

    async def renew(self, summary_id: str, lease: int, seconds: float) -> bool:
        """Let a lease end that many seconds from now. False if it has already ended."""

    async def release(self, summary_id: str, lease: int) -> None:
        """Give a lease back, if it is still valid."""

    async def close(self) -> None:
        """Close files and connections, and end tasks."""


MAX_BYTES = 32 * 1024 * 1024  # chosen: a small part of the process, and space for thousands of summaries.


class MemoryStore:
    """A SummaryStore bounded by bytes. renews: reads restart a summary's lifetime; else it counts from the write."""

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
        self._entries: BytesLRU[str, tuple[bytes, float]] = BytesLRU(
            max_bytes, lambda summary_id, entry: len(summary_id) + len(entry[0])
        )
        """Each entry, and each lease, with the time at which it expires."""
        self._leases: dict[str, tuple[int, float]] = {}
        self._numbers = itertools.count(first_lease)

    async def get(self, summary_id: str) -> bytes | None:
        return self._use(summary_id)

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        """Keep a summary unless the id has one. A summary larger than the store is returned but not kept."""
        kept = self._use(summary_id)
        if kept is not None:
            return kept
        if lease is not None and self._find_holder(summary_id) not in {None, lease}:
            return None
        self.replace(summary_id, sealed)
        return sealed

    def replace(self, summary_id: str, sealed: bytes) -> None:
        """Keep a summary in place of any other: for a caller that knows from another store which one holds."""
        self._entries[summary_id] = (sealed, self._clock() + self._ttl_seconds)

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        if self._find_holder(summary_id) is not None:
            return None
        now = self._clock()
        self._leases = {name: lease for name, lease in self._leases.items() if lease[1] > now}
        number = next(self._numbers)
        self._leases[summary_id] = (number, now + seconds)
        return number

    async def renew(self, summary_id: str, lease: int, seconds: float) -> bool:
        if self._find_holder(summary_id) != lease:
            return False
        self._leases[summary_id] = (lease, self._clock() + seconds)
        return True

    async def release(self, summary_id: str, lease: int) -> None:
        if self._find_holder(summary_id) == lease:
            del self._leases[summary_id]

    async def close(self) -> None:
        """Do nothing; there is nothing to release."""

    def _use(self, summary_id: str) -> bytes | None:
        sealed, expires_at = self._entries.get(summary_id) or (None, 0.0)
        if sealed is None or expires_at <= self._clock():
            return None
        if self._renews:
            self.replace(summary_id, sealed)
        return sealed

    def _find_holder(self, summary_id: str) -> int | None:
        number, expires_at = self._leases.get(summary_id, (0, -math.inf))
        return number if expires_at > self._clock() else None
