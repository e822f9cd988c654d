"""The memory that requests may take."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy import memory
from trimtab.proxy.memory import (
    CACHES_SHARE,
    IDLE_BYTES,
    KEPT_FACTOR,
    MOST_PARTS,
    PART_BYTES,
    STRIDE_BYTES,
    WIDE_WORK_FACTOR,
    WORK_FACTOR,
    Memory,
    bound_caches,
    bound_requests,
    estimate_work,
)

LONG_SECONDS = 60.0
MB = 1024 * 1024


async def _work(memory: Memory, tenant: str, body_bytes: int, seconds: float = LONG_SECONDS) -> bool:
    account = memory.open(tenant)
    is_there = await account.begin_work(WORK_FACTOR * body_bytes, wait_seconds=seconds)
    account.close()
    return is_there


def test_a_tenant_never_takes_the_last() -> None:
    """A single tenant may hold half, and each of two tenants a third. In the end, everything is free again."""
    memory = Memory(1200)
    first, second = memory.open("a"), memory.open("b")
    assert (first.hold(600), first.hold(1)) == (True, False)
    assert (second.hold(300), second.hold(1)) == (True, False)
    assert memory.open("a").hold(1) is False  # another request of the same tenant
    first.close()
    assert (second.hold(300), second.held_bytes, memory.left_bytes) == (True, 600, 600)
    second.close()
    assert memory.left_bytes == 1200


async def test_work_takes_more_than_what_is_kept_of_it() -> None:
    """First the bytes of the body are held, then the memory for the work, and then what is kept until the end."""
    memory = Memory(100_000)
    account = memory.open("a")
    assert account.hold(100)
    assert await account.begin_work(WORK_FACTOR * 100, wait_seconds=LONG_SECONDS)
    assert account.held_bytes == (1 + WORK_FACTOR) * 100
    account.end_work(100, body_bytes=100)
    assert account.held_bytes == KEPT_FACTOR * 100
    assert await account.begin_work(WORK_FACTOR * 100, wait_seconds=LONG_SECONDS)  # the second attempt
    assert account.held_bytes == (KEPT_FACTOR + WORK_FACTOR) * 100
    account.end_work(KEPT_FACTOR * 100, body_bytes=100)
    assert account.held_bytes == KEPT_FACTOR * 100
    account.close()
    assert memory.left_bytes == 100_000


async def test_who_waits_has_its_turn_when_others_give_back() -> None:
    """They get it in the order of their arrival. A request that does not fit yet does not stop the others."""
    memory = Memory(1800)
    held = memory.open("a")
    assert held.hold(900)
    async with asyncio.TaskGroup() as group:
        large = group.create_task(_work(memory, "b", 120))
        small = group.create_task(_work(memory, "c", 60))
        await asyncio.wait({small})
        assert not large.done()
        held.close()
    assert (large.result(), small.result(), memory.left_bytes) == (True, True, 1800)


async def test_who_waits_too_long_is_told_and_takes_nothing() -> None:
    """It delays nobody else."""
    memory = Memory(1000)
    held = memory.open("a")
    assert held.hold(400)
    assert await _work(memory, "b", 100, seconds=0.01) is False
    assert await _work(memory, "b", 50) is True
    held.close()
    assert memory.left_bytes == 1000


@pytest.mark.parametrize("is_given", [True, False])
async def test_who_leaves_while_it_waits_takes_nothing(is_given: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    """Its memory may even be granted at that moment."""
    memory = Memory(1000)
    held = memory.open("a")
    assert held.hold(400)
    waiting = asyncio.ensure_future(_work(memory, "b", 100))
    await asyncio.sleep(0)
    if is_given:
        held.close()
    waiting.cancel()
    await asyncio.wait({waiting})
    held.close()
    assert (waiting.cancelled(), memory.left_bytes) == (True, 1000)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 500)), max_size=40))
def test_nothing_is_taken_beyond_the_bound(steps: list[tuple[int, str, int]]) -> None:
    """In any order of requests, what is left is never negative. In the end everything is free again."""
    memory = Memory(1000)
    accounts = [(tenant, memory.open(tenant)) for tenant in "aabbcc"]
    for number, _, size_bytes in steps:
        tenant, account = accounts[number]
        others = memory.left_bytes
        if (account.take if number % 2 else account.hold)(size_bytes):
            assert sum(one.held_bytes for whose, one in accounts if whose == tenant) <= others
        elif size_bytes % 2:
            account.close()
        assert memory.left_bytes == 1000 - sum(one.held_bytes for _, one in accounts) >= 0
    for _, account in accounts:
        account.close()
    assert memory.left_bytes == 1000


@pytest.mark.parametrize("max_memory_mb", [512, 1024, 2048, 65536])
def test_the_formula_adds_up(max_memory_mb: int) -> None:
    """Idle process, caches and requests add up to the bound, and there is memory for work on a body."""
    caches_bytes = bound_caches(max_memory_mb * MB, 400 * MB)
    requests_bytes = bound_requests(max_memory_mb * MB, caches_bytes)
    assert caches_bytes == min(max_memory_mb // CACHES_SHARE, 400) * MB
    assert IDLE_BYTES + caches_bytes + requests_bytes == max_memory_mb * MB
    memory = Memory(requests_bytes)
    account, body_bytes = memory.open("a"), memory.most_body_bytes
    assert body_bytes > 7 * MB
    assert account.hold((1 + WORK_FACTOR) * body_bytes)


@pytest.mark.parametrize(
    ("body", "work_bytes"),
    [
        (b"x" * 1000, WORK_FACTOR * 1000),
        (b'{"a":"b"}', WORK_FACTOR * 9 + PART_BYTES * 2),
        ("é".encode() * 500, WIDE_WORK_FACTOR * 1000),
        (b'"\\ud83d\\ude00"', WIDE_WORK_FACTOR * 14 + PART_BYTES),
        (b"," * (3 * STRIDE_BYTES + 1), WORK_FACTOR * (3 * STRIDE_BYTES + 1) + PART_BYTES * MOST_PARTS),
        (b"x," * STRIDE_BYTES, (2 * WORK_FACTOR + PART_BYTES) * STRIDE_BYTES),
    ],
)
def test_work_is_estimated_by_bytes_and_values(body: bytes, work_bytes: int) -> None:
    """It is higher if Python may keep the texts in four bytes a character. The number of values has a maximum."""
    assert estimate_work(body) == work_bytes


@pytest.mark.parametrize(
    ("bound", "share", "most"),
    [
        (memory.bound_history, memory.HISTORY_SHARE, memory.MAX_HISTORY_BYTES),
        (memory.bound_text, memory.TEXT_SHARE, memory.MAX_TEXT_BYTES),
        (memory.bound_recordings, memory.RECORDINGS_SHARE, memory.MAX_RECORDINGS_BYTES),
    ],
)
def test_each_part_has_its_share_up_to_its_bound(bound: Callable[[int], int], share: int, most: int) -> None:
    assert [bound(share * size) for size in (most - 1, most, most + 1)] == [most - 1, most, most]
