"""Wishes of the operator: heard of by all processes that share a store, and fulfilled once."""

from trimtab.proxy.store.store import MemoryStore
from trimtab.proxy.summaries.cold_cuts import REFRESH_SECONDS, WAIT_HOURS, Wishes


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


async def test_each_process_hears_of_a_wish_and_one_of_them_takes_it() -> None:
    store, clock = MemoryStore(), Clock()
    one, other = Wishes(store, clock), Wishes(store, clock)
    await other.refresh()
    assert await one.make("s", "keep the tables")
    await other.refresh()
    assert other.find("s") is None  # it has looked just now
    clock.now += REFRESH_SECONDS
    await other.refresh()
    heard, known = other.find("s"), one.find("s")

    assert heard is not None
    assert known is not None
    assert heard.read_words("s") == "keep the tables"
    assert heard.read_words("another") == ""
    assert one.find("another") is None
    assert await other.take("s", heard, b"here")
    assert await one.take("s", known, b"here")  # the same request again
    assert not await one.take("s", known, b"there")
    late = Wishes(store, clock)
    await late.refresh()
    assert not late.pending
    assert not one.pending


async def test_two_wishes_are_one_until_it_is_fulfilled() -> None:
    store, clock = MemoryStore(), Clock()
    wishes = Wishes(store, clock)
    assert await wishes.make("s", "first")
    assert await Wishes(store, clock).make("s", "second")
    wish = wishes.find("s")
    assert wish is not None
    assert wish.read_words("s") == "first"
    assert await wishes.take("s", wish, b"here")
    clock.now += REFRESH_SECONDS
    await wishes.refresh()
    assert not wishes.pending
    assert await wishes.make("s", "third")
    assert wishes.find("s") is not None


async def test_an_old_wish_is_dropped_and_the_hours_before_are_read() -> None:
    store, clock = MemoryStore(), Clock()
    early = Wishes(store, clock)
    assert await early.make("s", "")
    clock.now += (WAIT_HOURS - 1) * 3600
    late = Wishes(store, clock)
    await late.refresh()
    assert late.find("s") is not None
    clock.now += 2 * 3600
    for wishes in (early, late, Wishes(store, clock)):
        await wishes.refresh()
        assert wishes.find("s") is None
