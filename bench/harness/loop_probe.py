"""Measures how late the event loop is: a task sleeps one millisecond, again and again, and records the excess.

Linux. The kernel accounts for what the loop's thread did meanwhile: it ran, or it waited for a processor. The rest of a
delay is waiting for the interpreter's lock.
"""

import asyncio
import os
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

INTERVAL_SECONDS = 0.001
_INTERVAL_NS = round(INTERVAL_SECONDS * 1e9)
_COLUMNS = 5


@dataclass(frozen=True, slots=True)
class Lag:
    """One delay in milliseconds: the whole, the time the thread ran, and the time it waited for a processor.

    `process` is the processor time of all threads of the process during the delay.
    """

    total: float
    own: float
    in_line: float
    process: float

    @property
    def lock(self) -> float:
        """The rest of the delay: waiting for the interpreter, which another thread had."""
        return max(self.total - self.own - self.in_line, 0.0)

    @property
    def program(self) -> float:
        """The part of the delay that the program can have caused.

        Not included: the wait for a processor, and time in which no thread of the program ran.
        """
        return max(min(self.total - self.in_line, self.process), 0.0)


class Probe:
    """Watches the loop that it runs on until it is cancelled."""

    def __init__(self) -> None:
        # Plain numbers, not objects: the samples must not give work to the garbage collector.
        self._samples = array("q")

    async def run(self) -> None:
        """Sleep and record, forever."""
        account = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        try:
            while True:
                before = _read(account)
                await asyncio.sleep(INTERVAL_SECONDS)
                after = _read(account)
                passed = (late - early for early, late in zip(before, after, strict=True))
                self._samples.extend((after[0], *passed))
        finally:
            os.close(account)

    def take(self) -> list[tuple[int, Lag]]:
        """The delays since the last call: when each ended (monotonic clock, nanoseconds), and the delay."""
        samples, self._samples = self._samples, array("q")
        rows = zip(*(samples[column::_COLUMNS] for column in range(_COLUMNS)), strict=True)
        return [(ended, _make_lag(passed - _INTERVAL_NS, *figures)) for ended, passed, *figures in rows]


LAG_HEADINGS = ("p50", "p99", "longest", "own", "in line", "lock", "longest of the program", "idle, longest")


def describe_lags(lags: Sequence[Lag], idle: Sequence[Lag]) -> list[str]:
    """The delays of some work under `LAG_HEADINGS`, in milliseconds, and the longest of the idle loop afterwards."""
    if not lags:  # the work was done before the probe ran
        return [*("-" for _ in LAG_HEADINGS[1:]), f"{_find_longest(idle):.1f}"]
    totals = sorted(lag.total for lag in lags)
    worst = max(lags, key=lambda lag: lag.total)
    figures = (
        median(totals),
        totals[int(0.99 * (len(totals) - 1))],
        *(worst.total, worst.own, worst.in_line, worst.lock),
        max(lag.program for lag in lags),
        _find_longest(idle),
    )
    return [f"{figure:.1f}" for figure in figures]


def _find_longest(lags: Sequence[Lag]) -> float:
    return max((lag.total for lag in lags), default=0.0)


def _make_lag(*figures_ns: int) -> Lag:
    return Lag(*(max(figure, 0) / 1e6 for figure in figures_ns))


def _read(account: int) -> tuple[int, int, int, int]:
    """Nanoseconds: the clock; time the thread ran; time it waited for a processor; time all threads ran."""
    own, in_line, _ = os.pread(account, 128, 0).split()
    return time.monotonic_ns(), int(own), int(in_line), time.process_time_ns()
