"""Marks on a session: cuts that were made because an upstream's cache was cold, and messages that a client wants kept.

They are kept like summaries, and replayed by every replica. Law: a record's id and encryption are derived from the
client's secret, and the first writer wins. A process that has served the previous request of a session knows all of its
marks if it had to know them for that, so it asks the store for nothing. A lost store costs one cache break.

And wishes of the operator that a session is cut at its next request: from the dashboard, or from a command. All
processes that share a store hear of a wish within REFRESH_SECONDS, and one of them fulfils it, once. One that no
request has met is dropped after WAIT_HOURS. What is said with it can be read only with the name of the session. The
store keeps only what has no record yet. So wishes are numbered within the hour in which they were made, and each
process goes on from the number up to which it has read.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec

from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.store.store import SummaryStore
from trimtab.proxy.summaries.sealing import derive_record_id, seal_text, unseal_text
from trimtab.rules.window.state import ColdCut

REFRESH_SECONDS = 5.0  # chosen: a person waits so long after a click, and it is one small read from the store
WAIT_HOURS = 24  # chosen: a session that is not gone on with for a day may be another piece of work by then
MAX_WISHES = 1000  # in an hour. Chosen: far more than people click; bounds the reading of a new process
HOUR_SECONDS = 3600


class Wish(msgspec.Struct, frozen=True):
    """A wish for a session. `sealed`: what its summary is to heed."""

    record_id: str
    hour: int
    sealed: bytes

    def read_words(self, session: str) -> str:
        """What the summary is to heed, may be empty."""
        return unseal_text(_derive_secret(session), self.record_id, self.sealed) or ""


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
            record = sha256(secret).digest() + seal_text(secret, record_id, words)
            await self._store.put(record_id, record)

    def find(self, session: str) -> Wish | None:
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


MAX_CUTS = 64  # Of sessions with the same beginning. Chosen: one a day, each an idle time, for two months.
HASH_BYTES = 150  # memory of a hash with its entry in a dictionary, an estimate for CPython
MAX_BYTES = 4 * 1024 * 1024  # chosen: some ten thousand sessions
TOUCH_SECONDS = 3600.0
"""After this time the records of a session are read again, so that the store knows that they are used. Chosen: short
compared with `store_ttl_seconds`, and rare compared with requests."""


@dataclass(frozen=True, slots=True)
class Session:
    """One client's sessions with one model of an upstream that begin alike. anchor: the hash of the first messages."""

    tenant: str
    secret: bytes = field(repr=False)
    model: str
    anchor: bytes

    def name_mark(self, what: str, number: int) -> str:
        return derive_record_id(self.secret, f"{what} {number}", self.anchor.hex(), self.model)

    def name_time(self, prefix: bytes) -> str:
        return derive_record_id(self.secret, "forwarded", prefix.hex(), self.model)


class _Known(msgspec.Struct):
    """What is known of a session: its cold cuts in their order, and when their records were last read."""

    cuts: dict[bytes, ColdCut] = msgspec.field(default_factory=dict)
    touched_at: float = 0.0


class Marks:
    """The marks of one kind of all sessions. `clock`: seconds since the epoch; processes that share a store share it.

    what: names the kind in the ids of records.
    is_kept: the store survives this process. is_used: there may be marks; without such a store only those that somebody
    has asked for in this process. has_any: this process has known some.
    """

    def __init__(self, store: SummaryStore, clock: Callable[[], float], what: str) -> None:
        self.clock = clock
        self._store, self._what = store, what
        self.is_kept = self.is_used = store.name != "memory"
        self.has_any = False
        self._known: BytesLRU[tuple[str, str, bytes], _Known] = BytesLRU(
            MAX_BYTES, lambda _, known: HASH_BYTES * (len(known.cuts) + 2)
        )
        self._of_clients: BytesLRU[tuple[str, str], Mapping[bytes, ColdCut]] = BytesLRU(
            MAX_BYTES, lambda _, cuts: HASH_BYTES * len(cuts)
        )
        self._heeded: BytesLRU[tuple[str, str, bytes], frozenset[bytes]] = BytesLRU(
            MAX_BYTES, lambda _, heeded: HASH_BYTES * (len(heeded) + 1)
        )

    def recall(self, tenant: str, model: str) -> Mapping[bytes, ColdCut]:
        """The cold cuts of a client that this process knows, by prefix: those of its newest sessions."""
        return self._of_clients.get((tenant, model)) or {}

    def follow(self, session: Session, previous: bytes, here: bytes) -> bool:
        """Whether all marks are known, as heeded for the previous request and not lost from memory since."""
        heeded = self._heeded.get((session.tenant, session.model, previous))
        if heeded is None or not heeded <= self.recall(session.tenant, session.model).keys():
            return False
        self.note_heeded(session, here, heeded)
        return True

    def note_heeded(self, session: Session, here: bytes, prefixes: Iterable[bytes]) -> None:
        """Note that all marks of the session, which have these prefixes, are heeded for a request."""
        self._heeded[session.tenant, session.model, here] = frozenset(prefixes)

    def note_added(self, session: Session, here: bytes, prefixes: Iterable[bytes]) -> None:
        """Note that a request has made marks itself; it still heeds all if it did before."""
        heeded = self._heeded.get((session.tenant, session.model, here))
        if heeded is not None:
            self.note_heeded(session, here, heeded.union(prefixes))

    async def read(self, session: Session, *, is_followed: bool) -> Mapping[bytes, ColdCut]:
        """The cold cuts of a session. is_followed: this process served its previous request, so nobody else has cut."""
        known = self._known.get((session.tenant, session.model, session.anchor))
        if known is None:
            known, is_followed = _Known(), False
        if known.cuts and abs(self.clock() - known.touched_at) > TOUCH_SECONDS:
            known.touched_at = self.clock()
            await self._touch(session, known)
        number = len(known.cuts)
        while not is_followed and number < MAX_CUTS:
            record = await self._read(session, session.name_mark(self._what, number))
            if not _note(record, known.cuts):
                break
            known.touched_at = self.clock()
            number += 1
        return self._hold(session, known)

    async def add(self, session: Session, prefix: bytes, kind: ColdCut) -> Mapping[bytes, ColdCut]:
        """Make a cold cut. Returns all cuts of the session; another process may have written some of them."""
        known = self._known.get((session.tenant, session.model, session.anchor)) or _Known()
        self.is_used = True
        number = len(known.cuts)
        while prefix not in known.cuts and number < MAX_CUTS:
            record_id = session.name_mark(self._what, number)
            record = await self._write(session, record_id, f"{prefix.hex()} {kind}")
            if not _note(record, known.cuts):
                break
            number += 1
        known.touched_at = self.clock()
        return self._hold(session, known)

    def _hold(self, session: Session, known: _Known) -> Mapping[bytes, ColdCut]:
        """Keep what is known of a session; of two that read at once, the one with more. Returns its cuts."""
        key = session.tenant, session.model, session.anchor
        other = self._known.get(key)
        known = known if other is None or len(known.cuts) >= len(other.cuts) else other
        self._known[key] = known
        self._show(session, known.cuts)
        return known.cuts

    async def _touch(self, session: Session, known: _Known) -> None:
        """Read the records of a session, so that they stay; write those that were lost."""
        for number, (prefix, kind) in enumerate(tuple(known.cuts.items())):
            record_id = session.name_mark(self._what, number)
            if await self._read(session, record_id) is None:
                await self._write(session, record_id, f"{prefix.hex()} {kind}")

    def _show(self, session: Session, cuts: Mapping[bytes, ColdCut]) -> None:
        before = self.recall(session.tenant, session.model)
        if cuts.keys() - before.keys():
            newest = list({**before, **cuts}.items())[-MAX_CUTS * MAX_CUTS :]
            self._of_clients[session.tenant, session.model] = dict(newest)
            self.has_any = True

    async def _read(self, session: Session, record_id: str) -> str | None:
        return unseal_text(session.secret, record_id, await self._store.get(record_id))

    async def _write(self, session: Session, record_id: str, text: str) -> str | None:
        """Write a record unless there is one. Returns the one that is kept."""
        sealed = await self._store.put(record_id, seal_text(session.secret, record_id, text))
        return unseal_text(session.secret, record_id, sealed)


class ColdCuts(Marks):
    """The cold cuts of all sessions, when requests were forwarded, and the wishes of clients. kept: by prefix."""

    def __init__(self, store: SummaryStore, clock: Callable[[], float] = time.time) -> None:
        super().__init__(store, clock, "cold cut")
        self.wishes = Wishes(store)
        self.kept = Marks(store, clock, "kept")
        self._forwarded: BytesLRU[tuple[str, str, bytes], float] = BytesLRU(MAX_BYTES, lambda *_: HASH_BYTES)

    def recall_time(self, session: Session, prefix: bytes) -> float | None:
        """When this process answered a request with this prefix; None if it has not, or has forgotten it."""
        return self._forwarded.get((session.tenant, session.model, prefix))

    async def find_time(self, session: Session, prefix: bytes) -> float | None:
        """When a prefix was last forwarded, by this process or another one; None if it is not known."""
        at = self.recall_time(session, prefix)
        if at is not None:
            return at
        record = await self._read(session, session.name_time(prefix))
        try:
            return None if record is None else float(record)
        except ValueError:
            return None

    async def note_time(self, session: Session, prefix: bytes, previous: bytes, *, shares: bool) -> None:
        """Note that a prefix is answered now, after `previous`. With `shares`, other processes get to know it, too."""
        now = self.clock()
        self._forwarded.pop((session.tenant, session.model, previous))
        self._forwarded[session.tenant, session.model, prefix] = now
        if shares:
            await self._write(session, session.name_time(prefix), repr(now))


def _note(record: str | None, cuts: dict[bytes, ColdCut]) -> bool:
    """Add what a record says to the cuts; return whether it says anything; another request may know it already."""
    prefix, _, kind = (record or "").partition(" ")
    try:
        chain, cold = bytes.fromhex(prefix), ColdCut(kind)
    except ValueError:
        return False
    cuts.setdefault(chain, cold)
    return True
