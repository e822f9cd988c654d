"""What a store of summaries is, and how it fails.

Law: a failure is named by the store and the kind of fault, in our words or the system's; never by a library's text,
which may hold a password or an address.
"""

import os
from typing import Protocol


class StoreError(Exception):
    """A store cannot be reached, or is broken; `fault` says how, in a few words."""

    def __init__(self, store: str, fault: str) -> None:
        super().__init__(f"the {store} store failed: {fault}")
        self.fault = fault


def describe_fault(error: Exception) -> str:
    """What the operating system says of an error, without a name of a file or a server."""
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number else "its answer cannot be read"


class SummaryStore(Protocol):
    """Sealed summaries by id. The first writer wins: what was forwarded once for an id never changes.

    Whoever is about to make a summary claims it first, so that of many only one pays for it. A lease is a number that
    grows from holder to holder. It ends by itself unless it is renewed, and a holder that slept through its end cannot
    write past the one that has the summary now.
    """

    name: str

    async def get(self, summary_id: str) -> bytes | None:
        """The summary under an id, which counts as used now; None where there is none."""

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        """Keep a summary unless the id has one; returns the one that is kept.

        Where the id has none and another lease than the writer's holds it now: writes nothing, returns None.
        """

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        """The right to make this summary, for so long: a lease; None while another holds it."""

    async def renew(self, summary_id: str, lease: int, seconds: float) -> bool:
        """Have a lease end so long from now; whether it still held. One that has ended does not begin again."""

    async def release(self, summary_id: str, lease: int) -> None:
        """Give a lease back, if it still holds."""

    async def close(self) -> None:
        """Let go of files, connections and tasks."""
