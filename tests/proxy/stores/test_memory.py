"""Summaries in this process."""

from proxy.stores import SummaryStore
from proxy.stores.memory import MemoryStore
from rules.summarise import Summary

FIRST = Summary("first", by_model=True)


def _long(letter: str) -> Summary:
    return Summary(letter * 1000, by_model=True)


async def test_an_unknown_id_has_no_summary() -> None:
    """What was never put is not there."""
    store: SummaryStore = MemoryStore()

    assert await store.get("id") is None


async def test_the_first_writer_wins() -> None:
    """A second summary for an id is not kept, and its writer is told which one is."""
    store = MemoryStore()

    assert [await store.put("id", FIRST), await store.put("id", _long("x"))] == [FIRST, FIRST]
    assert await store.get("id") == FIRST


async def test_who_wrote_it_is_kept() -> None:
    """A digest stays a digest."""
    store = MemoryStore()
    digest = Summary("", by_model=False)

    assert [await store.put("id", digest), await store.put("id", FIRST)] == [digest, digest]


async def test_the_least_recently_used_goes_first() -> None:
    """Bounded by bytes: of three where two have room, the one not asked for is forgotten."""
    store = MemoryStore(max_bytes=2 * (4 * 1000 + 300))
    for name in ("a", "b"):
        await store.put(name, _long(name))
    await store.get("a")
    await store.put("c", _long("c"))

    assert [await store.get(name) for name in "abc"] == [_long("a"), None, _long("c")]


async def test_a_summary_larger_than_the_store_is_returned_but_not_kept() -> None:
    """The writer can still go on with its own text."""
    store = MemoryStore(max_bytes=1000)

    assert await store.put("id", _long("x")) == _long("x")
    assert await store.get("id") is None
