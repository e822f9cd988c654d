"""A fair queue: work waits in lanes, one for each tenant, and lanes take turns.

Law: a waiting lane gets its turn after at most one turn of each other lane. No lane exceeds its share of places.
"""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items that wait for one of `places`. A lane holds at most `places_per_lane` of them. Not thread-safe."""

    def __init__(self, places: int, *, places_per_lane: int) -> None:
        self._left = places
        self._places_per_lane = places_per_lane
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        self._held: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, lane: str, item: T) -> None:
        self._waiting.setdefault(lane, deque()).append(item)

    def remove(self, lane: str, item: T) -> bool:
        items = self._waiting.get(lane, deque())
        if item not in items:
            return False
        items.remove(item)
        if not items:
            del self._waiting[lane]
        return True

    def begin(self) -> T | None:
        """Take the item whose turn it is and give it a place; None if no item may begin."""
        if not self._left:
            return None
        # The search is short: at most as many lanes as places have used up their share.
        lane = next((lane for lane in self._waiting if self._held.get(lane, 0) < self._places_per_lane), None)
        if lane is None:
            return None
        items = self._waiting.pop(lane)
        item = items.popleft()
        if items:
            self._waiting[lane] = items  # to the end of the queue of lanes
        self._left -= 1
        self._held[lane] = self._held.get(lane, 0) + 1
        return item

    def end(self, lane: str) -> None:
        self._left += 1
        self._held[lane] -= 1
        if not self._held[lane]:
            del self._held[lane]
