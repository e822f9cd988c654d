"""The texts of shortened results, for callers who fetch them back by the hash in a marker.

Law: a text is sealed with its client's secret, and its hash is derived from that secret, too: no other client can find
it or read it, and equal texts of two clients have two hashes. It is kept as long as the store keeps what is not used.
"""

import asyncio
import hmac
import time
from collections.abc import Mapping

from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.store.store import SummaryStore
from trimtab.proxy.summaries.sealing import derive_record_id, seal, unseal
from trimtab.rules.summary.request import Summary

HASH_CHARS = 24
"""Source: the contract of LiteLLM's guardrail `headroom`."""
TOUCH_SECONDS = 3600.0
"""After this time a text that is still sent is written again, so that the store knows that it is used. Chosen: short
compared with `store_ttl_seconds`."""
KNOWN_BYTES = 1024 * 1024  # chosen: some thousand hashes


def name_original(secret: bytes, text: str) -> str:
    """The hash of a client's text."""
    content = b"trimtab original\0" + text.encode("utf-8", "surrogatepass")
    return hmac.digest(secret, content, "sha256").hex()[:HASH_CHARS]


class Originals:
    """The texts of all clients, in a store."""

    def __init__(self, store: SummaryStore) -> None:
        self._store = store
        self._kept_at: BytesLRU[str, float] = BytesLRU(KNOWN_BYTES, lambda record_id, _: len(record_id))

    async def keep(self, secret: bytes, texts: Mapping[str, str]) -> None:
        """Keep a client's texts, by their hashes."""
        for name, text in texts.items():
            record_id, now = _name_record(secret, name), time.monotonic()
            kept_at = self._kept_at.get(record_id)
            if kept_at is None or now - kept_at > TOUCH_SECONDS:
                sealed = await asyncio.to_thread(seal, secret, record_id, Summary(text, by_model=False))
                await self._store.put(record_id, sealed)
                self._kept_at[record_id] = now

    async def find(self, secret: bytes, name: str) -> str | None:
        """The client's text with this hash; None if there is none, or none any more."""
        record_id = _name_record(secret, name)
        sealed = await self._store.get(record_id)
        found = None if sealed is None else await asyncio.to_thread(unseal, secret, record_id, sealed)
        return None if found is None else found.text


def _name_record(secret: bytes, name: str) -> str:
    return derive_record_id(secret, "original", name, "")
