"""Learning in several processes that share a store."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from support.model_learning import NAME, Clock, Start, run_processes

from trimtab.proxy.models import records
from trimtab.proxy.models.calibration import KEPT_SAMPLES, WARM_UP_SAMPLES
from trimtab.proxy.models.keeping import REFRESH_SECONDS
from trimtab.proxy.models.records import MAX_RATIO, Facts
from trimtab.proxy.store.opening import LayeredStore
from trimtab.proxy.store.store import MemoryStore


async def test_a_process_that_starts_later_knows_at_once(start: Start) -> None:
    """Its first look-up has the ratio. That counts as no change, because nothing was planned before."""
    first = start()
    await first.look_up()
    await first.feed([1.3] * WARM_UP_SAMPLES)
    second = start()

    assert await second.models.look_up(NAME, "other") == Facts(1.3)
    assert (second.changes, second.log.lines) == ({}, [])


async def test_a_later_change_is_learned_after_a_while(start: Start, clock: Clock) -> None:
    """The look-up that starts the refresh in the background still gets the old facts; the next one gets the new."""
    first, third = start(), start()
    await first.look_up()
    await third.look_up()
    await first.feed([1.3] * WARM_UP_SAMPLES)
    clock.seconds += REFRESH_SECONDS
    assert await third.look_up() == Facts(1.0)
    clock.seconds += 0.1

    assert await third.models.look_up(NAME, "other") == Facts(1.0)
    await third.settle()
    assert await third.models.look_up(NAME, "other") == Facts(1.3)
    assert third.changes == {"calibration": 1}


RATIOS = st.lists(st.floats(0.01, 30.0) | st.sampled_from((0.06, 1.0, 1.7, 12.0)), min_size=1, max_size=12)


@given(st.lists(st.tuples(RATIOS, st.integers(1, 9)), min_size=1, max_size=6))
def test_two_that_hear_the_same_agree_all_along(reported: list[tuple[list[float], int]]) -> None:
    """Neither reads the store except when it writes. The ratio always stays within its bounds."""

    async def run() -> None:
        async with run_processes(Clock()) as start:
            processes = (start(), start())
            for process in processes:
                await process.look_up()
            for ratios, times in reported:
                for ratio in ratios * times:
                    found = {await process.feed([ratio]) for process in processes}
                    assert len(found) == 1
                    assert 1 / MAX_RATIO <= found.pop() <= MAX_RATIO
            assert processes[0].changes == processes[1].changes

    asyncio.run(run())


@given(st.lists(st.tuples(st.integers(0, 2), RATIOS, st.integers(1, 9)), min_size=1, max_size=12))
def test_processes_that_hear_different_things_agree_at_the_next_look(
    reported: list[tuple[int, list[float], int]],
) -> None:
    """It does not matter how their reports differ, or which process writes first."""

    async def run() -> None:
        clock = Clock()
        async with run_processes(clock) as start:
            processes = [start() for _ in range(3)]
            for process in processes:
                await process.look_up()
            for who, ratios, times in reported:
                await processes[who].feed(ratios * times)
                if times % 2:  # else they get more reports before they read the store
                    continue
                clock.seconds += REFRESH_SECONDS + 1
                known = [await process.look_up() for process in processes]
                assert known == known[:1] * 3
                assert 1 / MAX_RATIO <= known[0].ratio <= MAX_RATIO

    asyncio.run(run())


async def test_one_question_serves_all_who_ask_first(start: Start) -> None:
    """Requests that meet a model at the same time read the store once."""
    asked: list[str] = []

    class Asked(MemoryStore):
        async def get(self, summary_id: str) -> bytes | None:
            asked.append(summary_id)
            await asyncio.sleep(0)
            return await super().get(summary_id)

    process = start(Asked())
    await asyncio.gather(*(process.models.look_up(NAME, "other") for _ in range(5)))

    assert len(asked) == 1
    assert NAME.model not in asked[0]
    assert NAME.base_url not in asked[0]


async def test_replicas_agree_again_after_a_store_lost_everything(start: Start, clock: Clock) -> None:
    """Each has a memory in front of the store. One starts anew, and knows again what the other one still knew."""
    durable = MemoryStore()
    fronts = [LayeredStore(durable, ttl_seconds=3600, on_error=str, log=None, clock=clock) for _ in range(2)]
    process = start(fronts[0])
    await process.look_up()
    await process.feed([1.3] * WARM_UP_SAMPLES)
    MemoryStore.__init__(durable)  # empty it
    fresh = start(fronts[1])
    assert await fresh.look_up() == Facts(1.0)
    for _ in range(2):
        clock.seconds += REFRESH_SECONDS + 1
        for each, front in zip((process, fresh), fronts, strict=True):
            await each.look_up()
            await front.settle()

    assert await fresh.look_up() == await process.look_up() == Facts(1.3)
    for front in fronts:
        await front.close()


async def test_a_corrupt_record_is_passed_over(start: Start, clock: Clock) -> None:
    """New findings are written after it, for all processes. Reading it again does not restart calibration."""
    store = MemoryStore()
    await store.put(records._record_id(NAME, 1), b"{")
    first, second = start(store), start(store)
    assert [await process.look_up() for process in (first, second)] == [Facts(1.0)] * 2
    await first.feed([1.3] * WARM_UP_SAMPLES)
    for _ in range(3):
        await first.feed([1.5] * (KEPT_SAMPLES // 3))
        clock.seconds += REFRESH_SECONDS + 1
        assert await first.look_up() == await second.look_up() == await start(store).look_up() == Facts(1.3)

    await first.feed([1.5] * (KEPT_SAMPLES - 3 * (KEPT_SAMPLES // 3)))
    clock.seconds += REFRESH_SECONDS + 1
    assert await first.look_up() == await second.look_up() == await start(store).look_up() == Facts(1.5)
    assert first.changes == second.changes == {"calibration": 2}


async def test_a_store_that_hangs_holds_up_the_first_request_only(start: Start) -> None:
    """The wait is short, and no other request waits. The store's late answer counts as a change."""
    answered = asyncio.Event()

    class Hanging(MemoryStore):
        async def get(self, summary_id: str) -> bytes | None:
            await answered.wait()
            return await super().get(summary_id)

    store = Hanging()
    await store.put(records._record_id(NAME, 1), b'{"ratio":1.3,"calibrated":true}')
    process = start(store)
    process.models.read_seconds = 0.001
    assert await process.models.look_up(NAME, "other") == Facts(1.0)
    process.models.read_seconds = 3600
    async with asyncio.timeout(30):
        assert await process.models.look_up(NAME, "other") == Facts(1.0)

    answered.set()
    assert await process.look_up() == Facts(1.3)
    assert process.changes == {"calibration": 1}
