"""Writes texts in a thread, one after another.

Law: bounded: the oldest work is dropped. Its task belongs to the writer and ends with it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.account.history.texts import Packed, Texts
from proxy.tasks import Tasks

MAX_WAITING = 32
"""Texts that wait to be written. Chosen: a burst of a team; each holds on to its transcript."""


@dataclass(frozen=True, slots=True)
class Work:
    """A text to write. `size_bytes`: the memory that it holds on to until then. `write`: returns None if it failed."""

    request_id: str
    size_bytes: int
    write: Callable[[], Packed | None] = field(repr=False)


class Writer:
    """The queue of one process. What waits holds on to at most `max_bytes`."""

    def __init__(self, texts: Texts, max_bytes: int, on_error: Callable[[BaseException], None]) -> None:
        self._texts = texts
        self._max_bytes = max_bytes
        self._waiting: deque[Work] = deque()
        self._waiting_bytes = 0
        self._tasks = Tasks(on_error)

    def add(self, work: Work) -> None:
        """Write a text soon. The oldest waiting ones give way; a text that is too large alone is never written."""
        if work.size_bytes > self._max_bytes:
            return
        self._waiting.append(work)
        self._waiting_bytes += work.size_bytes
        while len(self._waiting) > MAX_WAITING or self._waiting_bytes > self._max_bytes:
            self._take()
        if self._tasks.is_idle:
            _ = self._tasks.start(self._write_all())

    def clear(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        self._waiting_bytes = 0

    async def settle(self) -> None:
        """Wait until nothing waits."""
        await self._tasks.settle()

    async def close(self) -> None:
        """Drop what waits, and end the task."""
        self.clear()
        await self._tasks.close()

    def _take(self) -> Work:
        work = self._waiting.popleft()
        self._waiting_bytes -= work.size_bytes
        return work

    async def _write_all(self) -> None:
        while self._waiting:
            work = self._take()
            packed = await asyncio.to_thread(work.write)
            if packed is not None:
                self._texts.keep(work.request_id, packed)
            del work, packed  # else this frame would hold the transcript until the next work
