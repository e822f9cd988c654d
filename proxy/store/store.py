"""What a store of summaries promises, and how it fails.

Law: an error names the store and the kind of fault, in trimtab's words or those of the operating system. It never
quotes a library, whose text may contain a password or a URL.
"""

import os
from typing import Protocol


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
        """Keep a summary unless the id has one. Returns the summary that is kept.

        If the id has none, but another writer holds the lease: writes nothing and returns None.
        """

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        """A lease: the right to write this summary for this many seconds. None while another lease is valid."""

    async def renew(self, summary_id: str, lease: int, seconds: float) -> bool:
        """Let a lease end that many seconds from now. False if it has already ended."""

    async def release(self, summary_id: str, lease: int) -> None:
        """Give a lease back, if it is still valid."""

    async def close(self) -> None:
        """Close files and connections, and end tasks."""
