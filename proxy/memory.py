"""The memory that all requests together may take.

Law: nothing is taken beyond the bound. A tenant may take at most as much as is then left for all others, so it never
takes the last. Memory that is given back goes to waiting requests in the order of their arrival.
"""

import asyncio

import msgspec

WORK_FACTOR = 8
"""The most memory that work on a body takes, as a multiple of its bytes.

Measured for about sixty kinds of text of 10 MB: at most 7.2 times; see tests/attack/test_memory.py.
"""
WIDE_WORK_FACTOR = 15
"""As WORK_FACTOR, for a body with characters beyond ASCII: Python may store a text in four bytes a character.

Measured: at most 14.1 times, for a long string in JSON.
"""
KNOWN_WORK_FACTOR = 2  # As WORK_FACTOR, for a known beginning. Chosen: it may be copied once and joined once.
PART_BYTES = 130
"""The memory of each value of a body, in addition to WORK_FACTOR. Measured on 42,000 messages of 33 bytes."""
MOST_PARTS = 600_000  # A body with more values than this is not decoded (wire/chat/codec.py)
KEPT_FACTOR = 6
"""The memory that a body takes until its request is answered, as a multiple of its bytes. Chosen: its bytes, the bytes
of its elements, and its texts in four bytes a character."""
STRIDE_BYTES = 256 * 1024  # Chosen: counting in a piece of this size holds the interpreter for less than a millisecond
IDLE_BYTES = 256 * 1024 * 1024
"""The memory of an idle process with two vocabularies, and of about a hundred connections.

Measured without connections: 180 MB, on Linux with Python 3.11.
"""
CACHES_SHARE = 4  # Caches get at most 1/4 of the memory. Chosen: most of it is for requests.
HISTORY_SHARE = 64  # The dashboard's data get at most 1/64 of the memory. Chosen: enough for some thousand requests.
TEXT_SHARE = 16  # Texts for the dashboard get at most 1/16 of the memory. Chosen: some hundred requests.
RECORDINGS_SHARE = 16  # Recordings that wait to be written get at most 1/16 of the memory. Chosen: as for texts.
MAX_HISTORY_BYTES = 16 * 1024 * 1024  # Chosen: some four thousand requests; nobody reads more
MAX_TEXT_BYTES = 64 * 1024 * 1024  # Chosen: the newest hundred long requests; nobody reads more

MAX_RECORDINGS_BYTES = 128 * 1024 * 1024  # Chosen: some seconds of a busy proxy; a slow disk then costs no memory.


def bound_caches(max_memory_bytes: int, most_bytes: int) -> int:
    return min(max_memory_bytes // CACHES_SHARE, most_bytes)


def bound_history(max_memory_bytes: int) -> int:
    return min(max_memory_bytes // HISTORY_SHARE, MAX_HISTORY_BYTES)


def bound_text(max_memory_bytes: int) -> int:
    return min(max_memory_bytes // TEXT_SHARE, MAX_TEXT_BYTES)


def bound_recordings(max_memory_bytes: int) -> int:
    return min(max_memory_bytes // RECORDINGS_SHARE, MAX_RECORDINGS_BYTES)


def bound_requests(max_memory_bytes: int, caches_bytes: int, told_bytes: int = 0) -> int:
    """The bytes that are left for all requests together. `told_bytes`: of the dashboard and of recordings."""
    return max(max_memory_bytes - IDLE_BYTES - caches_bytes - told_bytes, 0)


def estimate_work(body: bytes, known_bytes: int = 0) -> int:
    """The most bytes that work on a body takes; in 2 ms a megabyte. Its first `known_bytes` are only copied."""
    body = body[known_bytes:]
    factor = WORK_FACTOR if body.isascii() and b"\\u" not in body else WIDE_WORK_FACTOR
    commas = quotes = 0
    for start in range(0, len(body), STRIDE_BYTES):  # in pieces, so that no call holds the interpreter for long
        commas += body.count(b",", start, start + STRIDE_BYTES)
        quotes += body.count(b'"', start, start + STRIDE_BYTES)
    part_bytes = PART_BYTES * min(commas + quotes // 2, MOST_PARTS)
    return KNOWN_WORK_FACTOR * known_bytes + factor * len(body) + part_bytes


class Memory:
    """The memory budget of all requests; `left_bytes` are free. Not thread-safe.

    A body larger than `most_body_bytes` can never be worked on, whatever it contains. One request (its body and the
    work on it) can never take more than `most_bytes`.
    """

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = self.most_bytes = self.most_body_bytes = 0
        self._held: dict[str, int] = {}
        self._waiting: dict[asyncio.Future[None], tuple[str, int]] = {}
        self.add(left_bytes)

    def add(self, size_bytes: int) -> None:
        """Change the budget by this many bytes; a negative number reduces it."""
        total_bytes = self.left_bytes + sum(self._held.values()) + size_bytes
        self.left_bytes += size_bytes
        self.most_bytes = total_bytes // 2
        self.most_body_bytes = self.most_bytes // (1 + WORK_FACTOR)

    def open(self, tenant: str) -> "Account":
        """An account for one request of a tenant. It has taken nothing yet."""
        return Account(self, tenant)

    def try_take(self, tenant: str, size_bytes: int, *, spare_bytes: int = 0) -> bool:
        """Take bytes, unless the tenant then held more than all others could get. spare_bytes: that must stay free."""
        held = self._held.get(tenant, 0) + size_bytes
        if held + spare_bytes > self.left_bytes:
            return False
        self._held[tenant] = held
        self.left_bytes -= size_bytes
        return True

    def give(self, tenant: str, size_bytes: int) -> None:
        """Give bytes back, and grant them to waiting requests in the order of their arrival."""
        self.left_bytes += size_bytes
        self._held[tenant] -= size_bytes
        if not self._held[tenant]:
            del self._held[tenant]
        for waiting, (whose, wanted) in tuple(self._waiting.items()) if self._waiting else ():
            if not waiting.done() and self.try_take(whose, wanted):
                waiting.set_result(None)

    async def take(self, tenant: str, size_bytes: int, *, wait_seconds: float) -> bool:
        """Take bytes as soon as they are free. False if that takes longer than `wait_seconds`."""
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
                self.give(tenant, size_bytes)  # it was granted just when the caller left
        return True


class Account(msgspec.Struct):
    memory: Memory
    tenant: str
    held_bytes: int = 0

    def hold(self, size_bytes: int) -> bool:
        """Take bytes until the account is closed. Returns whether they were taken.

        They are refused unless memory for the work on the body is free too. Otherwise bodies could fill the memory, and
        none of them could be worked on.
        """
        held_bytes = self.held_bytes + size_bytes
        spare_bytes = min(WIDE_WORK_FACTOR * held_bytes, max(self.memory.most_bytes - held_bytes, 0))
        is_there = self.memory.try_take(self.tenant, size_bytes, spare_bytes=spare_bytes)
        self.held_bytes += size_bytes if is_there else 0
        return is_there

    def take(self, size_bytes: int) -> bool:
        """Take bytes for what is no body, until the account is closed or shrinks. Returns whether they were taken."""
        is_there = self.memory.try_take(self.tenant, size_bytes)
        self.held_bytes += size_bytes if is_there else 0
        return is_there

    async def begin_work(self, size_bytes: int, *, wait_seconds: float) -> bool:
        """Take memory for work on a body, until the work ends. Returns False if it was not free in time."""
        is_there = await self.memory.take(self.tenant, size_bytes, wait_seconds=wait_seconds)
        self.held_bytes += size_bytes if is_there else 0
        return is_there

    def end_work(self, before_bytes: int, body_bytes: int) -> None:
        """Give the memory back: to what was held before, or what is kept for a body until its request is answered."""
        self.shrink(max(before_bytes, KEPT_FACTOR * body_bytes))

    def close(self) -> None:
        self.shrink(0)

    def shrink(self, most_bytes: int) -> None:
        given_bytes = self.held_bytes - most_bytes
        if given_bytes > 0:
            self.held_bytes -= given_bytes
            self.memory.give(self.tenant, given_bytes)
