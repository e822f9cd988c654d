"""Who is next: work in lanes, one for each tenant, that take turns.

Law: a lane that waits has its turn after at most one of each other lane. No lane has more than its share under way.
"""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """What waits for one of `places`, of which a lane may hold `places_per_lane` at once. Not thread-safe."""

    def __init__(self, places: int, *, places_per_lane: int) -> None:
        self._left = places
        self._places_per_lane = places_per_lane
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        self._held: dict[str, int] = {}

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    def add(self, lane: str, item: T) -> None:
        """An item waits, behind those of its lane."""
        self._waiting.setdefault(lane, deque()).append(item)

    def remove(self, lane: str, item: T) -> bool:
        """The item waits no more; whether it did."""
        items = self._waiting.get(lane, deque())
        if item not in items:
            return False
        items.remove(item)
        if not items:
            del self._waiting[lane]
        return True

    def begin(self) -> T | None:
        """The item whose turn it is, which holds a place from now on; None if nothing may begin."""
        if not self._left:
            return None
        # As many lanes as there are places may have their share already: the search is short.
        lane = next((lane for lane in self._waiting if self._held.get(lane, 0) < self._places_per_lane), None)
        if lane is None:
            return None
        items = self._waiting.pop(lane)
        item = items.popleft()
        if items:
            self._waiting[lane] = items  # behind all others
        self._left -= 1
        self._held[lane] = self._held.get(lane, 0) + 1
        return item

    def end(self, lane: str) -> None:
        """An item of the lane gives its place back."""
        self._left += 1
        self._held[lane] -= 1
        if not self._held[lane]:
            del self._held[lane]
