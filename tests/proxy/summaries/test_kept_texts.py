"""What was found beside the client's calls: every process that shares a store sends the same."""

import asyncio
from typing import Any

from support.stores import SharedStore, SlowStore

from trimtab.proxy.recall import Place
from trimtab.proxy.store.store import MemoryStore
from trimtab.proxy.summaries.kept_texts import MAX_BYTES, MAX_TEXTS, FoundTexts

ONE, OTHER = b"1" * 32, b"2" * 32
HEAD, FIRST = b"h" * 32, Place(b"1", "c1")


async def read(
    texts: FoundTexts, place: Place, *, here: bytes = b"2", previous: bytes | None = b"1", **owner: Any
) -> str | None:
    await texts.read(owner.get("tenant", "t"), owner.get("secret", ONE), HEAD, here=here, previous=previous)
    return texts.list(owner.get("tenant", "t"), HEAD).get(place)


async def test_another_process_reads_what_was_found() -> None:
    """With the client's secret, and with no other; the store has only sealed bytes."""
    store = SharedStore()
    await FoundTexts(store).keep("t", ONE, HEAD, FIRST, "a found text \ud800")
    assert await read(FoundTexts(store), FIRST) == "a found text ?"
    assert await read(FoundTexts(store), FIRST, tenant="other", secret=OTHER) is None
    assert await read(FoundTexts(store), Place(b"1", "c2")) is None
    assert not any(b"found text" in sealed for sealed, _ in store._entries._entries.values())


async def test_a_process_asks_only_if_another_may_have_served_the_session() -> None:
    store, later = SharedStore(), Place(b"3", "c3")
    texts, other = FoundTexts(store), FoundTexts(store)
    await texts.keep("t", ONE, HEAD, FIRST, "first")
    await read(other, FIRST)
    store.reads = 0
    assert await read(other, FIRST, previous=b"2", here=b"3") == "first"
    assert await read(other, FIRST, previous=b"1", here=b"3") == "first"  # planned again
    assert store.reads == 0
    await texts.keep("t", ONE, HEAD, later, "later")
    assert await read(other, later, previous=b"3", here=b"4") is None
    assert await read(other, later, previous=b"x", here=b"4") == "later"


async def test_it_asks_again_for_a_request_that_it_has_only_planned() -> None:
    """Its tokens were counted here, and another process has answered it."""
    store, later = SharedStore(), Place(b"3", "c3")
    texts, other = FoundTexts(store), FoundTexts(store)
    await read(other, FIRST, previous=None, here=b"3")
    await texts.keep("t", ONE, HEAD, later, "later")
    assert await read(other, later, previous=None, here=b"4") == "later"
    store.reads = 0
    assert await read(other, later, previous=b"4", here=b"5") == "later"
    assert store.reads == 0


async def test_the_first_writer_wins() -> None:
    """Two processes that have answered the same request at once send the same from then on."""
    store = SharedStore()
    texts, other = FoundTexts(store), FoundTexts(store)
    await texts.keep("t", ONE, HEAD, FIRST, "first")
    await other.keep("t", ONE, HEAD, FIRST, "second")
    await other.keep("t", ONE, HEAD, Place(b"5", "c5"), "third")
    for one in (texts, other, FoundTexts(store)):
        assert await read(one, FIRST, previous=b"x") == "first"
        assert await read(one, Place(b"5", "c5"), previous=b"y") == "third"


async def test_without_such_a_store_memory_has_them() -> None:
    store = MemoryStore()
    texts = FoundTexts(store)
    await texts.keep("t", ONE, HEAD, FIRST, "a found text")
    assert await read(texts, FIRST) == "a found text"
    assert not store._entries.total_bytes
    assert await read(FoundTexts(store), FIRST) is None


async def test_the_store_and_the_memory_are_bounded() -> None:
    store = SharedStore()
    texts = FoundTexts(store)
    for number in range(5 * MAX_TEXTS):
        await texts.keep("t", ONE, HEAD, Place(b"%d" % number, "c"), f"text {number}")
    assert len(store._entries._entries) == MAX_TEXTS
    assert await read(texts, Place(b"%d" % (5 * MAX_TEXTS - 1), "c")) == f"text {5 * MAX_TEXTS - 1}"
    assert await read(texts, Place(b"0", "c")) is None
    for number in range(20):
        await texts.keep("t", ONE, b"%d" % number, FIRST, "x" * (MAX_BYTES // 20))
    assert 0 < texts.total_bytes <= MAX_BYTES


async def test_a_damaged_record_is_no_text() -> None:
    """It stays in its place, so what is found later is in memory only."""
    store = SharedStore()
    await FoundTexts(store).keep("t", ONE, HEAD, FIRST, "first")
    (name,) = store._entries._entries
    store.replace(name, b"damaged")
    texts = FoundTexts(store)
    assert await read(texts, FIRST) is None
    await texts.keep("t", ONE, HEAD, FIRST, "again")
    assert await read(texts, FIRST) == "again"
    assert store._entries._entries.keys() == {name}


async def test_two_first_requests_of_a_session_at_once_lose_nothing() -> None:
    """Each finds a text; this process knows both, and which requests it has served."""
    texts, later = FoundTexts(SlowStore()), Place(b"2", "c2")
    await asyncio.gather(texts.keep("t", ONE, HEAD, FIRST, "first"), texts.keep("t", ONE, HEAD, later, "later"))
    assert texts.list("t", HEAD) == {FIRST: "first", later: "later"}
    held = texts._sessions.get(("t", HEAD))
    assert held is not None
    assert held.seen.keys() == {FIRST.before, later.before}
