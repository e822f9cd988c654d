"""The writer of a summary holds its lease while it works, and at most one lease longer if it dies."""

import asyncio

import pytest

from trimtab.proxy.store.store import MemoryStore, StoreError
from trimtab.proxy.summaries.service import LEASE_SECONDS, RENEW_SECONDS, hold


class Time:
    """A clock that stands still until the test ends a pause. Then it shows the time at the end of the pause."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []
        self._begun = asyncio.Semaphore(0)
        self._ended = asyncio.Semaphore(0)

    def __call__(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._begun.release()
        await self._ended.acquire()
        self.seconds += seconds

    async def pass_on(self) -> None:
        """End the present or next pause, and wait for the following one. The lease is renewed in between."""
        await self._begun.acquire()
        self._ended.release()
        await self._begun.acquire()
        self._begun.release()


class Flaky(MemoryStore):
    """A store whose renewals fail while it is out."""

    is_out = False

    async def renew(self, summary_id: str, lease: int, seconds: float) -> bool:
        if self.is_out:
            raise StoreError(self.name, "it is out")
        return await super().renew(summary_id, lease, seconds)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def store(time) -> Flaky:
    return Flaky(clock=time)


async def test_a_lease_holds_for_as_long_as_its_block(store, time) -> None:
    """The block may take many times the length of a lease. After it, the lease is free at once."""
    async with hold(store, "id", sleep=time.sleep) as lease:
        while time.seconds < 5 * LEASE_SECONDS:
            await time.pass_on()
            assert await store.claim("id", LEASE_SECONDS) is None
    assert await store.claim("id", LEASE_SECONDS) > lease
    assert set(time.pauses) == {RENEW_SECONDS}


async def test_who_does_not_renew_holds_nobody_up_for_longer_than_a_lease(store, time) -> None:
    lost = await store.claim("id", LEASE_SECONDS)
    time.seconds += LEASE_SECONDS
    async with hold(store, "id", sleep=time.sleep) as lease:
        assert lease > lost


async def test_what_another_holds_is_refused_and_left_alone(store, time) -> None:
    held = await store.claim("id", LEASE_SECONDS)
    async with hold(store, "id", sleep=time.sleep) as lease:
        assert lease is None
    assert await store.renew("id", held, LEASE_SECONDS)
    assert time.pauses == []


async def test_a_renewal_that_fails_is_tried_again(store, time) -> None:
    """A failed renewal does not end the block, and a single failure does not lose the lease."""
    async with hold(store, "id", sleep=time.sleep) as lease:
        while time.seconds < 3 * LEASE_SECONDS:
            store.is_out = not store.is_out
            await time.pass_on()
        assert await store.claim("id", LEASE_SECONDS) is None
        assert await store.put("id", b"sealed", lease) == b"sealed"


async def test_a_lease_that_was_lost_stays_the_other_ones(store, time) -> None:
    """The old holder's block goes on as usual. The old holder neither writes nor gives back the other one's lease."""
    async with hold(store, "id", sleep=time.sleep) as lost:
        time.seconds += LEASE_SECONDS
        held = await store.claim("id", LEASE_SECONDS)
        await time.pass_on()
        assert await store.put("id", b"late", lost) is None
    assert await store.put("id", b"held", held) == b"held"


@pytest.mark.parametrize("error", [asyncio.CancelledError, ValueError])
async def test_however_a_block_ends_nothing_goes_on(store, time, error) -> None:
    tasks = asyncio.all_tasks()

    async def fail() -> None:
        async with hold(store, "id", sleep=time.sleep):
            await time.pass_on()
            raise error

    with pytest.raises(error):
        await fail()
    assert asyncio.all_tasks() == tasks
    assert await store.claim("id", LEASE_SECONDS) is not None
