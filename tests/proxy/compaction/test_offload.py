"""Where work runs, and which work waits for other work."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from trimtab.proxy.compaction.offload import INLINE_BYTES, RULES, TIERS, BusyError, Lane, Tier, Workers, weigh_known
from trimtab.rules.results.work import LargeWorkError

SMALL_BYTES, MEDIUM_BYTES, LARGE_BYTES = INLINE_BYTES + 1, TIERS[0].most_bytes or 0, 100 * 1024 * 1024
LONG_SECONDS = 60.0


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    workers = Workers()
    yield workers
    workers.close()


@contextmanager
def _blocker() -> Iterator[Callable[[], None]]:
    over = threading.Event()
    try:
        yield partial(_wait_for, over)
    finally:
        over.set()


def _wait_for(event: threading.Event) -> None:
    assert event.wait(LONG_SECONDS)


def _lane(name: str = "a", seconds: float = LONG_SECONDS) -> Lane:
    return Lane(name, seconds)


@pytest.mark.parametrize(
    ("size_bytes", "thread"),
    [
        (0, "MainThread"), (INLINE_BYTES, "MainThread"), (SMALL_BYTES, "trimtab-small"),
        (MEDIUM_BYTES, "trimtab-small"), (MEDIUM_BYTES + 1, "trimtab-medium"), (LARGE_BYTES, "trimtab-large"),
    ],
)  # fmt: skip
async def test_work_is_done_where_it_belongs(workers: Workers, size_bytes: int, thread: str) -> None:
    """It runs on the loop or in the threads for its size. Its result and its errors reach the caller."""
    worker = await workers.run(_lane(), threading.current_thread, size_bytes=size_bytes)
    assert worker.name.startswith(thread)
    with pytest.raises(ZeroDivisionError):
        await workers.run(_lane(), lambda: 1 // 0, size_bytes=size_bytes)


@pytest.mark.parametrize(
    ("chars", "size_bytes", "tried"),
    [
        (9, 0, ["Main"]), (9, SMALL_BYTES, ["small"]), (SMALL_BYTES, 0, ["Main", "small"]),
        (MEDIUM_BYTES * RULES + 1, 0, ["Main", "small", "medium"]),
        (LARGE_BYTES, SMALL_BYTES, ["small", "medium", "large"]),
        (9, LARGE_BYTES, ["large"]),
    ],
)  # fmt: skip
async def test_work_that_turns_out_to_be_larger_is_begun_again(
    workers: Workers, chars: int, size_bytes: int, tried: list[str]
) -> None:
    """It starts again in the next tier with that bound; the last tier has none. Other work stays in its tier."""
    threads = []

    def work(*, max_chars: int | None) -> int:
        threads.append(threading.current_thread().name)
        if max_chars is not None and chars > max_chars:
            raise LargeWorkError
        return chars

    assert await workers.run_bounded(_lane(), work, size_bytes=size_bytes) == chars
    assert [next(name for name in ("Main", "small", "medium", "large") if name in one) for one in threads] == tried


async def test_small_work_does_not_wait_for_large_work(workers: Workers) -> None:
    """All threads for larger work are busy, and more of it waits."""
    with _blocker() as wait:
        async with asyncio.TaskGroup() as group:
            for name in "abcde":
                for size_bytes in (MEDIUM_BYTES + 1, LARGE_BYTES):
                    group.create_task(workers.run(_lane(name), wait, size_bytes=size_bytes))
            await asyncio.sleep(0)
            assert [pool.waiting for _, pool in workers.pools] == [0, 3, 3]
            assert await workers.run(_lane("a"), lambda: "done", size_bytes=SMALL_BYTES) == "done"
            wait.args[0].set()  # type: ignore[attr-defined]


async def test_who_waits_too_long_is_told_and_its_work_is_never_done() -> None:
    """The limit is on all of its waiting together. The next item in the lane then has its turn as usual."""
    workers, done = Workers([Tier("only", None, 1, 1)]), []
    with _blocker() as wait:
        async with asyncio.TaskGroup() as group:
            held = group.create_task(workers.run(_lane(), wait, size_bytes=LARGE_BYTES))
            await asyncio.sleep(0)
            late = _lane("b", 0.01)
            for _ in range(2):
                with pytest.raises(BusyError):
                    await workers.run(late, partial(done.append, "late"), size_bytes=LARGE_BYTES)
            assert late.left_seconds == 0
            patient = group.create_task(workers.run(_lane("b"), partial(done.append, "b"), size_bytes=LARGE_BYTES))
            await asyncio.sleep(0)
            wait.args[0].set()  # type: ignore[attr-defined]
            await asyncio.wait({held, patient})
    assert done == ["b"]
    workers.close()


@pytest.mark.parametrize("begun", [True, False])
async def test_who_leaves_takes_its_work_along(begun: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    """Waiting work is dropped. Running work goes on to its end, and only then is its thread free."""
    workers, done = Workers([Tier("only", None, 1, 1)]), []
    with _blocker() as wait:
        first = asyncio.ensure_future(workers.run(_lane("a"), wait, size_bytes=LARGE_BYTES))
        second = asyncio.ensure_future(workers.run(_lane("b"), partial(done.append, "b"), size_bytes=LARGE_BYTES))
        third = asyncio.ensure_future(workers.run(_lane("c"), partial(done.append, "c"), size_bytes=LARGE_BYTES))
        await asyncio.sleep(0)
        (first if begun else second).cancel()
        await asyncio.sleep(0)
        assert (done, workers.pools[0][1].waiting) == ([], 2 if begun else 1)
    await asyncio.wait({first, second, third})
    assert done == (["b", "c"] if begun else ["c"])
    workers.close()


async def test_a_turn_that_comes_as_its_owner_leaves_is_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers([Tier("only", None, 1, 1)])
    pool = workers.pools[0][1]
    with _blocker() as wait:
        first = asyncio.ensure_future(workers.run(_lane("a"), wait, size_bytes=LARGE_BYTES))
        second = asyncio.ensure_future(workers.run(_lane("b"), lambda: "never", size_bytes=LARGE_BYTES))
        await asyncio.sleep(0)
        end = pool._end
        monkeypatch.setattr(pool, "_end", lambda lane: (end(lane), second.cancel()))
    await asyncio.wait({first, second})
    assert second.cancelled()
    assert await workers.run(_lane("c"), lambda: "done", size_bytes=LARGE_BYTES) == "done"
    workers.close()


async def test_closed_workers_begin_nothing_and_hang_on_nothing(workers: Workers) -> None:
    """Waiting work gets an error. Running work ends in its thread."""
    workers.close()
    with pytest.raises(RuntimeError):
        await workers.run(_lane(), lambda: None, size_bytes=LARGE_BYTES)


def test_work_on_what_is_known_counts_little_and_never_as_none() -> None:
    assert weigh_known(0) > INLINE_BYTES
    assert weigh_known(32 * 1024 * 1024) == 2 * 1024 * 1024
