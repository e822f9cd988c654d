"""Summaries in this process."""

from proxy.stores import SummaryStore
from proxy.stores.memory import MemoryStore


async def test_an_unknown_id_has_no_text() -> None:
    """What was never put is not there."""
    store: SummaryStore = MemoryStore()

    assert await store.get("id") is None


async def test_the_first_writer_wins() -> None:
    """A second text for an id is not kept, and its writer is told which one is."""
    store = MemoryStore()

    assert [await store.put("id", "first"), await store.put("id", "second")] == ["first", "first"]
    assert await store.get("id") == "first"


async def test_an_empty_text_is_a_text() -> None:
    """Only absence lets a later writer in, not emptiness."""
    store = MemoryStore()

    assert [await store.put("id", ""), await store.put("id", "second")] == ["", ""]


async def test_the_least_recently_used_goes_first() -> None:
    """Bounded by bytes: of three where two have room, the one not asked for is forgotten."""
    store = MemoryStore(max_bytes=2 * (4 * 1000 + 300))
    for name in ("a", "b"):
        await store.put(name, name * 1000)
    await store.get("a")
    await store.put("c", "c" * 1000)

    assert [await store.get(name) for name in "abc"] == ["a" * 1000, None, "c" * 1000]


async def test_a_text_larger_than_the_store_is_returned_but_not_kept() -> None:
    """The writer can still go on with its own text."""
    store = MemoryStore(max_bytes=1000)

    assert await store.put("id", "x" * 1000) == "x" * 1000
    assert await store.get("id") is None
