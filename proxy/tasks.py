"""Background tasks with one owner, who starts them, waits for them, and ends them when done.

Law: no task outlives its owner's close(), and no error of a task is lost. Nothing else in the program makes a task,
but for task groups.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """The tasks of one owner. `on_error` is called with the error that ended a task, whether anybody waits or not."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._started: set[asyncio.Task[Any]] = set()

    @property
    def is_idle(self) -> bool:
        """Whether none is under way."""
        return all(task.done() for task in self._started)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that runs until it ends, or until close() ends it, whoever leaves meanwhile."""
        task = asyncio.get_running_loop().create_task(work)
        self._started.add(task)
        task.add_done_callback(self._end)
        return task

    async def settle(self) -> None:
        """Wait until none is under way, including those that are started meanwhile."""
        while self._started:
            await asyncio.wait(self._started)

    async def close(self) -> None:
        """Cancel what is under way, and wait until it has ended."""
        for task in self._started:
            task.cancel()
        await self.settle()

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._started.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_error(error)
