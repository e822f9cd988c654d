"""Texts that are kept for clients: what recall found beside a client's own calls, and results that were shortened.

Law: a text is sealed with its client's secret. What was found stands at its place in the client's later requests,
whichever process gets them: it is in the store before the client can send them. The first writer wins, so a text never
changes. One that is lost is missing from then on; the client's transcript is whole without it.

A shortened result is fetched back by the hash in its marker. The hash is derived from the secret, too: no other client
can find the text, and equal texts of two clients have two hashes.
"""

import asyncio
import hmac
import time
from collections.abc import Mapping

import msgspec

from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.recall import Place
from trimtab.proxy.store.store import SummaryStore
from trimtab.proxy.summaries.sealing import derive_record_id, seal_text, unseal_text
from trimtab.proxy.wire.json import DECODE_ERRORS

MAX_TEXTS = 64
"""Texts of sessions that begin alike which are written into the store, and a multiple of it in memory. Chosen: models
rarely ask, and hardly ever beside a call of the client's; bounds what a process reads that meets a session."""
MAX_BYTES = 4 * 1024 * 1024  # Texts in memory. Chosen: some thousand. A forgotten session is read again.
HASH_BYTES = 150  # memory of a hash with its entry in a dictionary, an estimate for CPython
_KEPT = 4 * MAX_TEXTS


class _Session(msgspec.Struct):
    """Sessions that begin alike. `seen`: the requests that this process has served; `read`: records of the store."""

    texts: dict[Place, str] = msgspec.field(default_factory=dict)
    seen: dict[bytes, None] = msgspec.field(default_factory=dict)
    read: int = 0


class FoundTexts:
    """The texts of all clients; of a client's sessions, by the hash of how they begin (`head`)."""

    def __init__(self, store: SummaryStore) -> None:
        self._store = store
        self._is_kept = store.name != "memory"
        self._sessions: BytesLRU[tuple[str, bytes], _Session] = BytesLRU(MAX_BYTES, _measure)

    @property
    def total_bytes(self) -> int:
        return self._sessions.total_bytes

    def list(self, tenant: str, head: bytes) -> Mapping[Place, str]:
        """The texts of a client's sessions that begin so, as far as this process knows them."""
        session = self._sessions.get((tenant, head))
        return {} if session is None else session.texts

    async def read(self, tenant: str, secret: bytes, head: bytes, *, here: bytes, previous: bytes | None) -> None:
        """Read what others have found since the session's `previous` request; None if another process answered that."""
        if not self._is_kept:
            return
        session = self._sessions.get((tenant, head)) or _Session()
        number = session.read
        while (previous is None or previous not in session.seen) and number < MAX_TEXTS:
            name = _name(secret, head, number)
            if not _note(session, unseal_text(secret, name, await self._store.get(name))):
                break
            number += 1
        session.read = max(session.read, number)
        if previous is not None:
            session.seen[previous] = None
        self._hold(tenant, head, session, here)

    async def keep(self, tenant: str, secret: bytes, head: bytes, place: Place, text: str) -> None:
        """Keep a text. When this returns, every process that shares the store can read it."""
        session = self._sessions.get((tenant, head)) or _Session()
        text = text.encode("utf-8", "replace").decode()
        record = msgspec.json.encode((place.before.hex(), place.call_id, text)).decode()
        kept: str | None = None
        number = session.read
        while self._is_kept and kept != record and number < MAX_TEXTS:
            name = _name(secret, head, number)
            kept = unseal_text(secret, name, await self._store.put(name, seal_text(secret, name, record)))
            if not _note(session, kept):  # else of another process, which was first
                break
            number += 1
        session.read = max(session.read, number)
        session.texts.setdefault(place, text)
        self._hold(tenant, head, session, place.before)

    def _hold(self, tenant: str, head: bytes, session: _Session, here: bytes) -> None:
        other = self._sessions.get((tenant, head))
        if other is not None and other is not session:  # two first requests have read at once, each for itself
            session.texts, session.seen = {**session.texts, **other.texts}, {**session.seen, **other.seen}
            session.read = max(session.read, other.read)
        session.seen[here] = None
        for held in (session.seen, session.texts):
            while len(held) > _KEPT:
                del held[next(iter(held))]  # type: ignore[arg-type]
        self._sessions[tenant, head] = session


def _measure(key: tuple[str, bytes], session: _Session) -> int:
    hashes = len(session.texts) + len(session.seen)
    return sum(map(len, key)) + 2 * sum(map(len, session.texts.values())) + HASH_BYTES * hashes


def _name(secret: bytes, head: bytes, number: int) -> str:
    return derive_record_id(secret, f"found text {number}", head.hex(), "")


def _note(session: _Session, record: str | None) -> bool:
    """Note what a record says; whether it says anything."""
    try:
        before, call_id, text = _decode(record or "")
        session.texts.setdefault(Place(bytes.fromhex(before), call_id), text)
    except (*DECODE_ERRORS, ValueError):
        return False
    return True


_decode = msgspec.json.Decoder(tuple[str, str, str]).decode

HASH_CHARS = 24  # source: the contract of LiteLLM's guardrail `headroom`
TOUCH_SECONDS = 3600.0  # Then a text that is still sent is written again. Chosen: short against `store_ttl_seconds`.
KNOWN_BYTES = 1024 * 1024  # chosen: some thousand hashes


def name_original(secret: bytes, text: str) -> str:
    """The hash of a client's text."""
    content = b"trimtab original\0" + text.encode("utf-8", "surrogatepass")
    return hmac.digest(secret, content, "sha256").hex()[:HASH_CHARS]


class Originals:
    def __init__(self, store: SummaryStore) -> None:
        self._store = store
        self._kept_at: BytesLRU[str, float] = BytesLRU(KNOWN_BYTES, lambda record_id, _: len(record_id))

    async def keep(self, secret: bytes, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            record_id, now = _name_record(secret, name), time.monotonic()
            kept_at = self._kept_at.get(record_id)
            if kept_at is None or now - kept_at > TOUCH_SECONDS:
                sealed = await asyncio.to_thread(seal_text, secret, record_id, text)
                await self._store.put(record_id, sealed)
                self._kept_at[record_id] = now

    async def find(self, secret: bytes, name: str) -> str | None:
        """The client's text with this hash; None if there is none, or none any more."""
        record_id = _name_record(secret, name)
        sealed = await self._store.get(record_id)
        return await asyncio.to_thread(unseal_text, secret, record_id, sealed)


def _name_record(secret: bytes, name: str) -> str:
    return derive_record_id(secret, "original", name, "")
