"""What requests may take of the memory all together.

Law: nothing is taken beyond the bound. A tenant may have as much as is left for all others, so that it never takes the
last; whoever gives back wakes those who wait, in the order in which they came.
"""

import asyncio
from dataclasses import dataclass, field

WORK_FACTOR = 8
"""The memory that work on a body takes, by its bytes, at most.

Source: measured for some sixty kinds of text of 10 MB: at most 7.2 times; see tests/attack/test_memory.py.
"""
WIDE_WORK_FACTOR = 15
"""The same if the body may hold a character for which Python keeps a whole text in four bytes a character.

Source: measured: at most 14.1 times, of a long string within JSON.
"""
KNOWN_WORK_FACTOR = 2
"""The same of what an earlier body has begun with: it may be written once more, and joined."""
PART_BYTES = 130
"""What each value of a body takes besides. Source: measured on 42,000 messages of 33 bytes."""
MOST_PARTS = 600_000
"""A body of more is not decoded (wire/chat/request.py)."""
KEPT_FACTOR = 6
"""The same until it is answered: its bytes, its elements' bytes, and its texts with four bytes a character."""
STRIDE_BYTES = 256 * 1024
IDLE_BYTES = 256 * 1024 * 1024
"""A process that serves nothing, with two vocabularies, and what it holds for some hundred connections.

Source: 180 MB measured, on Linux with Python 3.11.
"""
CACHES_SHARE = 4
"""Caches have at most one part in so many of the memory."""


def bound_caches(max_memory_bytes: int, most_bytes: int) -> int:
    """What all caches together may have, at most `most_bytes`."""
    return min(max_memory_bytes // CACHES_SHARE, most_bytes)


def bound_requests(max_memory_bytes: int, caches_bytes: int) -> int:
    """What is left for all requests together."""
    return max(max_memory_bytes - IDLE_BYTES - caches_bytes, 0)


def estimate_work(body: bytes, known_bytes: int = 0) -> int:
    """The memory that work on a body takes at most, in bytes. Finding out takes some 2 ms a megabyte.

    The first `known_bytes` were worked on before: they are put together again, and nothing is made of them.
    """
    if known_bytes:
        return KNOWN_WORK_FACTOR * known_bytes + estimate_work(body[known_bytes:])
    factor = WORK_FACTOR if body.isascii() and b"\\u" not in body else WIDE_WORK_FACTOR
    commas = quotes = 0
    for start in range(0, len(body), STRIDE_BYTES):  # no step holds the interpreter for long
        commas += body.count(b",", start, start + STRIDE_BYTES)
        quotes += body.count(b'"', start, start + STRIDE_BYTES)
    return factor * len(body) + PART_BYTES * min(commas + quotes // 2, MOST_PARTS)


class Memory:
    """`left_bytes` may still be taken. Not thread-safe.

    There would never be memory for a body of more than `most_body_bytes`, whatever it is of, nor for more than
    `most_bytes` of any one request: its body, and the work on it.
    """

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = self.most_bytes = self.most_body_bytes = 0
        self._held: dict[str, int] = {}
        self._waiting: dict[asyncio.Future[None], tuple[str, int]] = {}
        self.add(left_bytes)

    def add(self, size_bytes: int) -> None:
        """So much more may be taken, or less."""
        total_bytes = self.left_bytes + sum(self._held.values()) + size_bytes
        self.left_bytes += size_bytes
        self.most_bytes = total_bytes // 2
        self.most_body_bytes = self.most_bytes // (1 + WORK_FACTOR)

    def open(self, tenant: str) -> "Account":
        """What one request of a tenant takes; nothing yet."""
        return Account(self, tenant)

    def try_take(self, tenant: str, size_bytes: int, *, spare_bytes: int = 0) -> bool:
        """Take so much, if that is there and `spare_bytes` besides; whether it was."""
        held = self._held.get(tenant, 0) + size_bytes
        if held + spare_bytes > self.left_bytes:
            return False
        self._held[tenant] = held
        self.left_bytes -= size_bytes
        return True

    def give(self, tenant: str, size_bytes: int) -> None:
        """Give so much back."""
        self.left_bytes += size_bytes
        self._held[tenant] -= size_bytes
        if not self._held[tenant]:
            del self._held[tenant]
        for waiting, (whose, wanted) in tuple(self._waiting.items()):
            if not waiting.done() and self.try_take(whose, wanted):
                waiting.set_result(None)

    async def take(self, tenant: str, size_bytes: int, *, wait_seconds: float) -> bool:
        """Take so much as soon as it is there; False if that takes too long."""
        if self.try_take(tenant, size_bytes):
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = tenant, size_bytes
        is_awaited = False
        try:
            async with asyncio.timeout(wait_seconds):
                await turn
            is_awaited = True
        except TimeoutError:
            return False
        finally:
            del self._waiting[turn]
            if not is_awaited and turn.done() and not turn.cancelled():
                self.give(tenant, size_bytes)  # it came just as nobody waited any more
        return True


@dataclass(slots=True)
class Account:
    """What one request has taken: `held_bytes`."""

    memory: Memory
    tenant: str
    held_bytes: int = field(default=0)

    def hold(self, size_bytes: int) -> bool:
        """Take so much, until the account is closed; whether it was there, and room for work on it besides.

        Else bodies would fill the memory, and none could be worked on.
        """
        held_bytes = self.held_bytes + size_bytes
        spare_bytes = min(WIDE_WORK_FACTOR * held_bytes, max(self.memory.most_bytes - held_bytes, 0))
        is_there = self.memory.try_take(self.tenant, size_bytes, spare_bytes=spare_bytes)
        self.held_bytes += size_bytes if is_there else 0
        return is_there

    def working(self, body_bytes: int, work_bytes: int, *, wait_seconds: float) -> "Working":
        """Whether there is memory for work on a body, as there is in the block; behind it, for what is kept of it."""
        return Working(self, body_bytes, work_bytes, wait_seconds)

    def close(self) -> None:
        """The request has been served, or given up."""
        self.shrink(0)

    def shrink(self, most_bytes: int) -> None:
        """Give back what is beyond so much."""
        given_bytes = max(self.held_bytes - most_bytes, 0)
        if given_bytes:
            self.held_bytes -= given_bytes
            self.memory.give(self.tenant, given_bytes)


class Working:
    """A block with memory for work. A class: a generator for each request costs three times as much."""

    __slots__ = ("_account", "_before_bytes", "_body_bytes", "_wait_seconds", "_work_bytes")

    def __init__(self, account: Account, body_bytes: int, work_bytes: int, wait_seconds: float) -> None:
        self._account = account
        self._before_bytes = account.held_bytes
        self._body_bytes = body_bytes
        self._work_bytes = work_bytes
        self._wait_seconds = wait_seconds

    async def __aenter__(self) -> bool:
        """Take it; whether it was there in time."""
        account = self._account
        is_there = await account.memory.take(account.tenant, self._work_bytes, wait_seconds=self._wait_seconds)
        account.held_bytes += self._work_bytes if is_there else 0
        return is_there

    async def __aexit__(self, *_: object) -> None:
        """Give it back, but for what is kept of the body."""
        self._account.shrink(max(self._before_bytes, KEPT_FACTOR * self._body_bytes))
