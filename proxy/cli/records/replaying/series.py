"""The course of a replay, for a picture: at most MAX_POINTS points, whatever the length of the input.

Law: if there are too many points, every second one is left out, and from then on fewer are taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_POINTS = 2000  # chosen: more than the pixels of a picture's width


@dataclass(frozen=True, slots=True)
class Point:
    """The state after a request. tokens: of the prompt, as sent, by side. costs: all so far, by side and arm."""

    number: int
    original_tokens: int
    sent_tokens: Mapping[str, int]
    costs: Mapping[str, Mapping[str, float]]


@dataclass(slots=True)
class Series:
    """The points so far."""

    points: list[Point] = field(default_factory=list)
    _number: int = 0
    _stride: int = 1

    def begin(self) -> bool:
        """Begin a request. Returns whether it becomes a point."""
        self._number += 1
        return (self._number - 1) % self._stride == 0

    def add(
        self, original_tokens: int, sent_tokens: Mapping[str, int], costs: Mapping[str, Mapping[str, float]]
    ) -> None:
        """Add the point of the request that has begun."""
        self.points.append(Point(self._number, original_tokens, sent_tokens, costs))
        if len(self.points) >= MAX_POINTS:
            self.points = self.points[::2]
            self._stride *= 2
