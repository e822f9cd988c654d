"""Texts that are fetched back by their hash: with the secret of the client that sent them, and with no other."""

from unittest.mock import AsyncMock

import pytest

from trimtab.proxy.store.store import MemoryStore
from trimtab.proxy.summaries import kept_texts
from trimtab.proxy.summaries.kept_texts import Originals, name_original

ONE, OTHER = b"1" * 32, b"2" * 32


async def test_a_text_is_found_with_the_secret_of_its_client_only() -> None:
    store = MemoryStore()
    originals, text = Originals(store), "a long text \ud800"
    name = name_original(ONE, text)
    await originals.keep(ONE, {name: text})
    await originals.keep(ONE, {name: "another text"})  # the first one counts

    assert await originals.find(ONE, name) == text
    assert await Originals(store).find(ONE, name) == text
    assert await originals.find(OTHER, name) is None
    assert name_original(OTHER, text) != name
    assert not any(b"long text" in sealed for _, (sealed, _) in store._entries.items())


async def test_a_text_that_is_still_sent_is_written_again_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with each request."""
    store = AsyncMock()
    originals, texts = Originals(store), {name_original(ONE, "a long text"): "a long text"}
    for _ in range(3):
        await originals.keep(ONE, texts)
    assert store.put.await_count == 1
    monkeypatch.setattr(kept_texts, "TOUCH_SECONDS", -1.0)
    await originals.keep(ONE, texts)
    assert store.put.await_count == 2
