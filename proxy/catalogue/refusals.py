"""What upstreams have refused among the things that trimtab adds to requests.

Law: each client learns for itself, for each upstream and model. What is forgotten costs one refused request, which the
client never sees.
"""

from collections import OrderedDict
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T", bound=str)
MAX_KEPT = 1024
"""Entries kept; with more, the oldest is forgotten. Chosen: more than the clients and models of one process."""

Asked = tuple[str, str, str]
"""The id of a tenant, the base URL of an upstream, and a model."""


class Refusals(Generic[T]):
    """What is not added any more, by tenant, upstream and model; for one process. Used on the event loop only.

    seconds: for so long after its first refusal, an entry is kept. Then what was refused is tried again.
    """

    def __init__(self, seconds: float = inf) -> None:
        self._seconds = seconds
        self._kept: OrderedDict[Asked, tuple[frozenset[T], float]] = OrderedDict()

    def find(self, asked: Asked, now: float = 0.0) -> frozenset[T]:
        refused, until = self._kept.get(asked, (frozenset[T](), 0.0))
        return refused if now < until else frozenset()

    def keep(self, asked: Asked, refused: frozenset[T], now: float = 0.0) -> None:
        known = self.find(asked, now)
        until = self._kept[asked][1] if known else now + self._seconds
        self._kept[asked] = known | refused, until
        self._kept.move_to_end(asked)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
