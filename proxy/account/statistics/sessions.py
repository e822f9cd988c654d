"""Remembers of each session when its last requests were made, and how the upstream's cache treated them.

Law: it only observes. If a session is unknown or forgotten, it says so.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from proxy.account.prompt_cache import Cache
from proxy.lru import BytesLRU

MAX_BYTES = 8 * 1024 * 1024  # chosen: the last request of some twenty thousand sessions
SEEN_BYTES = 300
"""What is kept of a request. Measured with CPython 3.12, rounded up."""
MAX_NEW_MESSAGES = 1000
"""Messages by which a session may grow between two requests and still be recognised. Chosen: far above one turn."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request of a session.

    messages: the number of its messages. at: its time in seconds.
    is_changed: trimtab changed it, or an earlier request of the session.
    """

    messages: int
    at: float
    is_changed: bool
    cache: Cache


class Sessions:
    """The requests of sessions, by the hash of their transcripts. Thread-safe."""

    def __init__(self) -> None:
        self._seen: BytesLRU[tuple[Hashable, bytes], Seen] = BytesLRU(MAX_BYTES, lambda *_: SEEN_BYTES)

    def find(self, client: Hashable, hashes: Sequence[bytes]) -> Seen | None:
        """The longest known request that a transcript begins with; None if there is none.

        client: all that has a cache of its own, as the tenant, the model, and what is said before the transcript.
        hashes: of the transcript's prefixes.
        """
        shortest = max(len(hashes) - 1 - MAX_NEW_MESSAGES, 0)
        found = (self._seen.get((client, known)) for known in hashes[:shortest:-1])
        return next((seen for seen in found if seen is not None), None)

    def keep(self, client: Hashable, hashes: Sequence[bytes], seen: Seen) -> None:
        """Remember a request."""
        self._seen[client, hashes[-1]] = seen
