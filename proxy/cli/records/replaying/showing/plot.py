"""Draws the course of a replay: the prompts, and what they have cost so far.

Law: it is imported only if a picture is asked for, because it needs the extra `plot`.
"""

from pathlib import Path
from typing import Any

from proxy.cli.records.replaying.series import Series

_SIZE_INCHES = (10.0, 7.0)
_NAMES = {"trimtab": "with trimtab", "nothing": "unchanged", "sliding": "sliding window", "summaries": "summaries"}


class NoPlotError(Exception):
    """A picture cannot be drawn. The message says what to do."""


def draw(series: Series, file: Path) -> None:
    """Write a picture of the course. Raises NoPlotError."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = "--plot needs matplotlib; install it with: pip install 'trimtab[plot]'"
        raise NoPlotError(message) from error
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    _draw_tokens(above, series)
    _draw_costs(below, series)
    try:
        figure.savefig(file)
    except OSError as error:
        message = f"{file}: {error.strerror}"
        raise NoPlotError(message) from error


def _draw_tokens(axes: Any, series: Series) -> None:
    numbers = [point.number for point in series.points]
    axes.plot(numbers, [point.original_tokens for point in series.points], label="as the client sent it")
    for name in series.points[-1].sent_tokens if series.points else ():
        axes.plot(numbers, [point.sent_tokens.get(name) for point in series.points], label=f"sent, {name}")
    axes.set_ylabel("prompt tokens")
    axes.set_ylim(bottom=0)
    if axes.lines:
        axes.legend()


def _draw_costs(axes: Any, series: Series) -> None:
    numbers = [point.number for point in series.points]
    for name, costs in (series.points[-1].costs if series.points else {}).items():
        for arm in costs:
            course = [point.costs[name].get(arm, 0.0) for point in series.points]
            if any(course):
                axes.plot(numbers, course, label=f"{_NAMES[arm]}, {name}")
    axes.set_xlabel("requests")
    axes.set_ylabel("cost so far")
    axes.set_ylim(bottom=0)
    if axes.lines:
        axes.legend()
