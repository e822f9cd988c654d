"""Background tasks with one owner, which starts them, waits for them, and cancels them at the end; and their pauses.

Law: no task outlives its owner's close(), and no error of a task is lost. Only this module and task
groups create tasks.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """The tasks of one owner. `on_error` gets the error that ended a task, whether or not anything awaits the task."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._started: set[asyncio.Task[Any]] = set()

    @property
    def is_idle(self) -> bool:
        return all(task.done() for task in self._started)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task. It runs to its end or until close(), even if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._started.add(task)
        task.add_done_callback(self._end)
        return task

    async def settle(self) -> None:
        while self._started:
            await asyncio.wait(self._started)

    async def close(self) -> None:
        for task in self._started:
            task.cancel()
        await self.settle()

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._started.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_error(error)


async def shield_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run work to its end although the caller is cancelled, and raise that then. A second cancellation ends it."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def find_pause(failures: int, first_seconds: float, most_seconds: float) -> float:
    """The seconds to wait after failures in a row: `first_seconds` after the first, doubled by each further one."""
    # Of more doublings each would be the longest pause; of a thousand the seconds are no float any more.
    return min(first_seconds * 2.0 ** min(failures - 1, 100), most_seconds)
