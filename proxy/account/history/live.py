"""Who wants to hear of each request when it ends.

Law: nobody is waited for. A subscriber that does not keep up loses what waits for it, and is told so.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from proxy.account.history.turn import Turn

MAX_WAITING = 128
"""Items that wait for one subscriber. Chosen: a second of a busy proxy, some 400 kB."""

Item = Turn | bytes
"""A turn of this process, or that of another worker as it told it."""


class Subscriber:
    """One reader of the stream. `is_closed`: nothing comes any more."""

    def __init__(self) -> None:
        self.is_closed = False
        self._is_lost = False
        self._waiting: list[Item] = []
        self._woken = asyncio.Event()

    def put(self, item: Item) -> None:
        """Add an item; drop all if too many wait."""
        self._waiting.append(item)
        if len(self._waiting) > MAX_WAITING:
            self.lose()
        self._woken.set()

    def lose(self) -> None:
        """Drop what waits: the reader must load everything again."""
        self._waiting.clear()
        self._is_lost = True
        self._woken.set()

    def close(self) -> None:
        """End the subscription."""
        self.is_closed = True
        self._woken.set()

    async def take(self, wait_seconds: float) -> tuple[list[Item], bool]:
        """What waits, after at most `wait_seconds` for the first item; and whether items before it were lost."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await self._woken.wait()
        self._woken.clear()
        items, is_lost = self._waiting, self._is_lost
        self._waiting, self._is_lost = [], False
        return items, is_lost


class Live:
    """All subscribers of this process.

    readers: how many of them are browsers.
    totals: when the totals were read for all of them, on the monotonic clock, and the totals; `reading` while they are.
    """

    def __init__(self) -> None:
        self.readers = 0
        self.totals: tuple[float, dict[str, Any]] | None = None
        self.reading = asyncio.Lock()
        self._subscribers: set[Subscriber] = set()

    def __len__(self) -> int:
        """The number of subscribers."""
        return len(self._subscribers)

    def publish(self, turn: Turn) -> None:
        """Tell all subscribers of a request."""
        for subscriber in self._subscribers:
            subscriber.put(turn)

    @contextmanager
    def subscribing(self) -> Iterator[Subscriber]:
        """A block with a subscription."""
        subscriber = Subscriber()
        self._subscribers.add(subscriber)
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)

    def close(self) -> None:
        """End all subscriptions."""
        for subscriber in self._subscribers:
            subscriber.close()
