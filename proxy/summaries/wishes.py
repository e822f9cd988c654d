"""Wishes of the operator that a session is cut at its next request: from the dashboard, or from a command.

Law: all processes that share a store hear of a wish within REFRESH_SECONDS, and one of them fulfils it, once. One that
no request has met is dropped after WAIT_HOURS. What is said with it can be read only with the name of the session.

The store keeps only what has no record yet. So wishes are numbered within the hour in which they were made, and each
process goes on from the number up to which it has read.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from trimtab.proxy.store.store import SummaryStore
from trimtab.proxy.summaries.sealing import seal, unseal
from trimtab.rules.summary.request import Summary

REFRESH_SECONDS = 5.0
"""Chosen: a person waits so long after a click, and it is one small read from the store."""
WAIT_HOURS = 24
"""Chosen: a session that is not gone on with for a day may be another piece of work by then."""
MAX_WISHES = 1000  # in an hour. Chosen: far more than people click; bounds the reading of a new process
HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Wish:
    """A wish for a session. `sealed`: what its summary is to heed."""

    record_id: str
    hour: int
    sealed: bytes

    def read_words(self, session: str) -> str:
        """What the summary is to heed, may be empty."""
        found = unseal(_derive_secret(session), self.record_id, self.sealed)
        return "" if found is None else found.text


class Wishes:
    """The wishes that this process knows: `pending`, by a hash of the session's name."""

    def __init__(self, store: SummaryStore, clock: Callable[[], float] = time.time) -> None:
        self.pending: dict[bytes, Wish] = {}
        self.read_at = 0.0
        self._store = store
        self._clock = clock
        self._numbers: dict[int, int] = {}  # by hour: the first number that was not read yet

    async def make(self, session: str, words: str) -> bool:
        """Wish that a session is cut at its next request. False if there are too many wishes in this hour."""
        hour, secret = int(self._clock()) // HOUR_SECONDS, _derive_secret(session)
        while True:
            await self._read_hour(hour)
            if self.find(session) is not None:  # the first wish counts: two would be two cuts
                return True
            number = self._numbers[hour]
            if number >= MAX_WISHES:
                return False
            record_id = _name_record(hour, number)
            record = sha256(secret).digest() + seal(secret, record_id, Summary(words, by_model=False))
            await self._store.put(record_id, record)

    def find(self, session: str) -> Wish | None:
        """The wish for a session; None if this process knows none."""
        return self.pending.get(sha256(_derive_secret(session)).digest())

    async def refresh(self) -> None:
        """Read the wishes that others have made, if that was not done just now."""
        now = self._clock()
        if now - self.read_at < REFRESH_SECONDS:
            return
        first, hour = int(self.read_at) // HOUR_SECONDS, int(now) // HOUR_SECONDS
        self.read_at, oldest = now, hour - WAIT_HOURS
        self.pending = {name: wish for name, wish in self.pending.items() if wish.hour >= oldest}
        self._numbers = {at: number for at, number in self._numbers.items() if at >= oldest}
        for at in range(max(first - 1, oldest), hour + 1):  # one may be late in writing that of the hour before
            await self._read_hour(at)

    async def take(self, session: str, wish: Wish, prefix: bytes) -> bool:
        """Take a wish for the request with this prefix. False if another process has taken it for another request."""
        self.pending.pop(sha256(_derive_secret(session)).digest(), None)
        return await self._store.put(_name_done(wish.record_id), prefix) == prefix

    async def _read_hour(self, hour: int) -> None:
        number = self._numbers.get(hour, 0)
        while number < MAX_WISHES and (record := await self._store.get(_name_record(hour, number))) is not None:
            record_id, number = _name_record(hour, number), number + 1
            if await self._store.get(_name_done(record_id)) is None:
                self.pending[record[:32]] = Wish(record_id, hour, record[32:])
        self._numbers[hour] = number


def _derive_secret(session: str) -> bytes:
    return sha256(b"trimtab wish\0" + session.encode()).digest()


def _name_record(hour: int, number: int) -> str:
    return sha256(f"trimtab wish {hour} {number}".encode()).hexdigest()


def _name_done(record_id: str) -> str:
    return sha256(f"done {record_id}".encode()).hexdigest()
