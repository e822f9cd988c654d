"""Summaries in this process."""

from trimtab.proxy.lru import ENTRY_BYTES
from trimtab.proxy.store.store import MemoryStore

ENTRY = 1000 + ENTRY_BYTES + 1


async def test_the_least_recently_used_goes_first() -> None:
    """The bound is in bytes. If two of three summaries have room, the one that was not read is dropped."""
    store = MemoryStore(max_bytes=2 * ENTRY)
    for name in ("a", "b"):
        await store.put(name, name.encode() * 1000)
    await store.get("a")
    await store.put("c", b"c" * 1000)

    assert [await store.get(name) for name in "abc"] == [b"a" * 1000, None, b"c" * 1000]


async def test_a_summary_larger_than_the_store_is_returned_but_not_kept() -> None:
    store = MemoryStore(max_bytes=ENTRY)

    assert await store.put("id", b"x" * 2000) == b"x" * 2000
    assert await store.get("id") is None


async def test_reading_does_not_prolong_where_it_must_not(clock) -> None:
    """An example is a store in front of a durable one, which must be asked again."""
    store = MemoryStore(ttl_seconds=100, clock=clock, renews=False)
    await store.put("id", b"sealed")
    clock.seconds += 99
    assert await store.get("id") == b"sealed"
    clock.seconds += 1

    assert await store.get("id") is None


async def test_leases_that_ran_out_take_no_room(clock) -> None:
    store = MemoryStore(clock=clock)
    for number in range(10):
        await store.claim(f"{number}", 60)
    clock.seconds += 60
    await store.claim("id", 60)

    assert list(store._leases) == ["id"]
