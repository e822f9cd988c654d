"""A memory store in front of a durable store, and in its place during an outage."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from trimtab.proxy.store.opening import CONFIRM_SECONDS, FIRST_STAND_IN_LEASE, LayeredStore
from trimtab.proxy.store.redis import RedisStore
from trimtab.proxy.store.store import MemoryStore, StoreError

TTL_SECONDS = 1000.0
OUT = {"event": "store_unreachable", "store": "durable", "reason": "BrokenError"}
BACK = {"event": "store_reachable", "store": "durable"}


class Durable(MemoryStore):
    """A store that can be made to fail: for all operations, or for writes only."""

    name = "durable"

    def __init__(self, clock) -> None:
        super().__init__(ttl_seconds=TTL_SECONDS, clock=clock)
        self.is_out = False
        self.is_full = False
        self.asked: list[str] = []
        self.is_closed = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def get(self, summary_id: str) -> bytes | None:
        await self._meet("get", writes=False)
        return await super().get(summary_id)

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        await self._meet("put", writes=True)
        return await super().put(summary_id, sealed, lease)

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        await self._meet("claim", writes=True)
        return await super().claim(summary_id, seconds)

    async def renew(self, summary_id: str, lease: int, seconds: float) -> bool:
        await self._meet("renew", writes=True)
        return await super().renew(summary_id, lease, seconds)

    async def release(self, summary_id: str, lease: int) -> None:
        await self._meet("release", writes=True)
        await super().release(summary_id, lease)

    async def close(self) -> None:
        self.is_closed = True
        await self._meet("close", writes=False)

    async def _meet(self, operation: str, *, writes: bool) -> None:
        self.asked.append(operation)
        await self.answers.wait()
        if self.is_out or (writes and self.is_full):
            raise StoreError(self.name, "BrokenError")


class Pauses:
    """Pauses that last until the test ends them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._begun = asyncio.Semaphore(0)
        self._ended = asyncio.Semaphore(0)

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self._begun.release()
        await self._ended.acquire()

    async def end(self) -> None:
        """End the present pause or the next one."""
        await self._begun.acquire()
        self._ended.release()


@pytest.fixture
def durable(clock) -> Durable:
    """The durable store."""
    return Durable(clock)


@pytest.fixture
def pauses() -> Pauses:
    """The pauses between two attempts to reach it."""
    return Pauses()


@pytest.fixture
def errors() -> list[str]:
    """The name of the store, once for each failure."""
    return []


@pytest.fixture
async def store(durable, pauses, errors, clock, log) -> AsyncIterator[LayeredStore]:
    """A memory store in front of the durable store."""
    store = LayeredStore(durable, ttl_seconds=TTL_SECONDS, on_error=errors.append, log=log, clock=clock, sleep=pauses)
    yield store
    await store.close()


@asynccontextmanager
async def _recovering(store: LayeredStore, pauses: Pauses) -> AsyncIterator[None]:
    """After the block the next attempt succeeds."""
    yield
    await pauses.end()
    await store.settle()


async def test_it_goes_by_the_durable_ones_name(store) -> None:
    """The name is the metrics' label."""
    assert store.name == "durable"


async def test_what_memory_has_is_not_asked_for_again(store, durable) -> None:
    """The law holds for summaries that were written here, and for those that the durable store returned."""
    await MemoryStore.put(durable, "behind", b"2")
    await store.put("here", b"1")
    found = [await store.get(summary_id) for summary_id in ("here", "behind", "behind")]

    assert (found, durable.asked) == ([b"1", b"2", b"2"], ["put", "get"])


async def test_a_summary_that_may_not_be_written_is_not_kept_in_memory(store, clock) -> None:
    """Another process has taken over its lease."""
    lost = await store.claim("id", 60)
    clock.seconds += 61
    await store.claim("id", 60)

    assert await store.put("id", b"late", lost) is None
    assert await store.get("id") is None


async def test_the_durable_store_learns_of_use_that_memory_answers(store, durable, clock) -> None:
    """It is asked again after a few seconds, and keeps the summary as long as it is used."""
    await store.put("id", b"sealed")
    for _ in range(20):
        clock.seconds += 0.3 * TTL_SECONDS
        assert await store.get("id") == b"sealed"
        await store.settle()
        assert await MemoryStore.get(durable, "id") == b"sealed"


async def test_what_the_durable_store_has_lost_is_written_again_at_its_next_use(store, durable, clock) -> None:
    """Memory answers at once, and the durable store is asked once in a few seconds."""
    await store.put("id", b"sealed")
    MemoryStore.__init__(durable, ttl_seconds=TTL_SECONDS, clock=clock)  # empty it
    clock.seconds += CONFIRM_SECONDS + 1
    durable.answers.clear()
    assert [await store.get("id") for _ in range(5)] == [b"sealed"] * 5

    durable.answers.set()
    await store.settle()
    assert await MemoryStore.get(durable, "id") == b"sealed"
    assert durable.asked == ["put", "get", "put"]


async def test_who_writes_first_after_a_loss_wins(store, durable, clock) -> None:
    """The other replica's text is used from then on, so both forward the same."""
    await store.put("id", b"ours")
    MemoryStore.__init__(durable, ttl_seconds=TTL_SECONDS, clock=clock)  # empty it
    await MemoryStore.put(durable, "id", b"theirs")
    clock.seconds += CONFIRM_SECONDS + 1
    assert await store.get("id") == b"ours"
    await store.settle()

    assert await store.get("id") == b"theirs"


async def test_a_store_that_is_out_when_asked_again_loses_nothing(store, durable, pauses, clock, errors) -> None:
    """The next use after the outage writes what the store has lost in it."""
    await store.put("id", b"sealed")
    MemoryStore.__init__(durable, ttl_seconds=TTL_SECONDS, clock=clock)  # empty it
    durable.is_out = True
    async with _recovering(store, pauses):
        for _ in range(2):
            clock.seconds += CONFIRM_SECONDS + 1
            assert await store.get("id") == b"sealed"
            await asyncio.sleep(0)
        durable.is_out = False
    assert errors == ["durable"]
    clock.seconds += CONFIRM_SECONDS + 1
    await store.get("id")
    await store.settle()

    assert await MemoryStore.get(durable, "id") == b"sealed"


async def test_memory_stands_in_while_the_durable_store_is_out(store, durable, errors, log) -> None:
    """The outage is logged once, and the failed operation is counted once. The store is not asked again meanwhile."""
    durable.is_out = True

    assert await store.put("id", b"1") == b"1"
    assert await store.put("id", b"2") == b"1"
    assert [await store.get("id"), await store.get("other")] == [b"1", None]
    assert (durable.asked, errors, log.lines) == (["put"], ["durable"], [OUT])


async def test_every_operation_that_failed_is_counted_and_the_outage_said_once(store, durable, errors, log) -> None:
    """Many operations are in progress when the outage begins."""
    durable.is_out = True
    durable.answers.clear()
    asking = asyncio.gather(store.get("a"), store.put("b", b"1"), store.claim("c", 60))
    await asyncio.sleep(0)
    durable.answers.set()

    assert await asking == [None, b"1", FIRST_STAND_IN_LEASE]
    assert (durable.asked, errors, log.lines) == (["get", "put", "claim"], ["durable"] * 3, [OUT])


@pytest.mark.parametrize("operation", ["get", "put", "claim", "renew", "release"])
async def test_no_operation_fails(store, durable, operation) -> None:
    """Any operation may be the first one to fail."""
    durable.is_out = True
    answers = {
        "get": (store.get("id"), None),
        "put": (store.put("id", b"1"), b"1"),
        "claim": (store.claim("id", 1), FIRST_STAND_IN_LEASE),
        "renew": (store.renew("id", 1, 1), False),
        "release": (store.release("id", 1), None),
    }
    answer, expected = answers.pop(operation)
    for unused, _ in answers.values():
        unused.close()

    assert await answer == expected
    assert durable.asked == [operation]


async def test_pauses_grow_and_failures_go_on_being_counted(store, durable, pauses, errors) -> None:
    """They grow up to half a minute."""
    durable.is_out = True
    await store.get("id")
    for _ in range(8):
        await pauses.end()
    await pauses._begun.acquire()

    assert pauses.seconds == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert errors == ["durable"] * 9


async def test_what_was_kept_meanwhile_is_written_when_it_is_back(store, durable, pauses, log) -> None:
    """Then the store is used again. The log says so once."""
    durable.is_out = True
    async with _recovering(store, pauses):
        await store.put("meanwhile", b"1")
        durable.is_out = False
    await store.put("after", b"2")

    assert [await MemoryStore.get(durable, summary_id) for summary_id in ("meanwhile", "after")] == [b"1", b"2"]
    assert log.lines == [OUT, BACK]


async def test_who_wrote_first_wins_after_an_outage_too(store, durable, pauses) -> None:
    """A text of another replica stays, and this process uses it from then on."""
    durable.is_out = True
    async with _recovering(store, pauses):
        assert await store.put("id", b"ours") == b"ours"
        await MemoryStore.put(durable, "id", b"theirs")
        durable.is_out = False

    assert await store.get("id") == b"theirs"


async def test_a_store_that_can_only_be_read_is_still_out(store, durable, pauses, errors, log) -> None:
    """A full disk is an example. Otherwise the store would be used and lost again and again."""
    durable.is_full = True
    await store.claim("id", 1)
    for _ in range(2):
        await pauses.end()
    await pauses._begun.acquire()

    assert log.lines == [OUT]
    assert errors == ["durable"] * 3


async def test_an_outage_while_writing_through_goes_on_where_it_broke_off(store, durable, pauses, monkeypatch) -> None:
    """Every summary is written in the end."""
    durable.is_out = True
    for summary_id in "abc":
        await store.put(summary_id, summary_id.encode())
    durable.is_out = False
    monkeypatch.setattr(durable, "put", _break_after(2, durable))
    await pauses.end()
    await pauses._begun.acquire()
    pauses._begun.release()
    assert [await MemoryStore.get(durable, summary_id) for summary_id in "abc"] == [b"a", b"b", None]

    await pauses.end()
    await store.settle()
    assert await MemoryStore.get(durable, "c") == b"c"


async def test_beyond_a_bound_the_oldest_are_not_written_through(store, durable, pauses) -> None:
    """So the cost is bounded, however long the outage is."""
    store.max_unwritten = 2
    durable.is_out = True
    async with _recovering(store, pauses):
        for summary_id in "abc":
            await store.put(summary_id, summary_id.encode())
        durable.is_out = False

    assert [await MemoryStore.get(durable, summary_id) for summary_id in "abc"] == [None, b"b", b"c"]


async def test_what_memory_has_forgotten_meanwhile_is_not_written(store, durable, pauses, clock) -> None:
    """It was not used for half of its lifetime."""
    durable.is_out = True
    async with _recovering(store, pauses):
        await store.put("id", b"sealed")
        clock.seconds += TTL_SECONDS / 2
        durable.is_out = False

    assert "put" not in durable.asked[1:]


async def test_leases_of_an_outage_hold_within_the_process(store, durable) -> None:
    """One caller makes the summary. After it has given back its lease, the next one can have it."""
    durable.is_out = True
    first = await store.claim("id", 60)

    assert await store.claim("id", 60) is None
    await store.release("id", first)
    assert await store.claim("id", 60) > first


async def test_a_lease_is_renewed_at_the_store_that_granted_it(store, durable, pauses) -> None:
    """An outage in between does not end a lease, and no other lease is taken for it."""
    granted = await store.claim("id", 60)
    durable.is_out = True
    assert not await store.renew("id", granted, 60)
    async with _recovering(store, pauses):
        stand_in = await store.claim("other", 60)
        assert await store.renew("other", stand_in, 60)
        durable.is_out = False
    asked = len(durable.asked)

    assert await store.renew("other", stand_in, 60)
    assert durable.asked[asked:] == []
    assert await store.renew("id", granted, 60)
    assert durable.asked[asked:] == ["renew"]


async def test_a_lease_of_an_outage_does_not_touch_the_durable_stores(store, durable, pauses) -> None:
    """After the outage, its holder writes its summary, and gives back only its own lease."""
    durable.is_out = True
    async with _recovering(store, pauses):
        stand_in = await store.claim("id", 60)
        durable.is_out = False
    granted = await store.claim("id", 60)

    await store.release("id", stand_in)
    assert durable.asked[-1] == "claim"
    assert await store.claim("id", 60) is None
    assert granted < FIRST_STAND_IN_LEASE
    assert await store.put("id", b"sealed", stand_in) == b"sealed"


async def test_closing_ends_the_attempts(store, durable) -> None:
    """The durable store is closed too, even if that fails."""
    durable.is_out = True
    await store.get("id")
    await store.close()

    async with asyncio.timeout(30):
        await store.settle()
    assert durable.is_closed


async def test_a_redis_server_that_dies_and_comes_back(own_redis, pauses, errors, log) -> None:
    """The same holds for a real server."""
    store = LayeredStore(
        RedisStore(own_redis.url, ttl_seconds=TTL_SECONDS),
        ttl_seconds=TTL_SECONDS,
        on_error=errors.append,
        log=log,
        sleep=pauses,
    )
    own_redis.stop()
    assert await store.put("id", b"sealed") == b"sealed"
    await asyncio.to_thread(own_redis.start)
    await pauses.end()
    await store.settle()
    await store.close()

    replica = RedisStore(own_redis.url, ttl_seconds=TTL_SECONDS)
    assert await replica.get("id") == b"sealed"
    await replica.close()
    assert [line["event"] for line in log.lines] == ["store_unreachable", "store_reachable"]
    assert errors == ["redis"]


def _break_after(number: int, durable: Durable):
    """A `put` that fails once, after this many calls."""
    puts = 0

    async def put(summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        nonlocal puts
        puts += 1
        if puts == number + 1:
            raise StoreError(durable.name, "BrokenError")
        return await MemoryStore.put(durable, summary_id, sealed, lease)

    return put
