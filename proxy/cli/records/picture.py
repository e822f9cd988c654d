"""The course of a replay, and its picture: the prompts, and what they have cost so far.

Law: at most MAX_POINTS points, whatever the length of the input. If there are too many, every second one is left out,
and from then on fewer are taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.proxy.cli.options import StoppedError

MAX_POINTS = 2000  # chosen: more than the pixels of a picture's width
_SIZE_INCHES = (10.0, 7.0)
_NAMES = {"trimtab": "with trimtab", "nothing": "unchanged", "sliding": "sliding window", "summaries": "summaries"}


@dataclass(frozen=True, slots=True)
class Point:
    """The state after a request. sent_tokens: by variant. costs: all so far, by variant and strategy."""

    number: int
    original_tokens: int
    sent_tokens: Mapping[str, int]
    costs: Mapping[str, Mapping[str, float]]


@dataclass(slots=True)
class Series:
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
        self.points.append(Point(self._number, original_tokens, sent_tokens, costs))
        if len(self.points) >= MAX_POINTS:
            self.points = self.points[::2]
            self._stride *= 2


def draw(series: Series, file: Path) -> None:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = "--plot needs matplotlib; install it with: pip install 'trimtab[plot]'"
        raise StoppedError(message) from error
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    _draw_tokens(above, series)
    _draw_costs(below, series)
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        if axes.lines:
            axes.legend()
    try:
        figure.savefig(file)
    except OSError as error:
        message = f"{file}: {error.strerror}"
        raise StoppedError(message) from error


def _draw_tokens(axes: Any, series: Series) -> None:
    numbers = [point.number for point in series.points]
    axes.plot(numbers, [point.original_tokens for point in series.points], label="as the client sent it")
    for name in series.points[-1].sent_tokens if series.points else ():
        axes.plot(numbers, [point.sent_tokens.get(name) for point in series.points], label=f"sent, {name}")
    axes.set_ylabel("prompt tokens")


def _draw_costs(axes: Any, series: Series) -> None:
    numbers = [point.number for point in series.points]
    for name, costs in (series.points[-1].costs if series.points else {}).items():
        for strategy in costs:
            course = [point.costs[name].get(strategy, 0.0) for point in series.points]
            if any(course):
                axes.plot(numbers, course, label=f"{_NAMES[strategy]}, {name}")
    axes.set_xlabel("requests")
    axes.set_ylabel("cost so far")
