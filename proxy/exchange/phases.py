"""The phases of the work on a request, and how long each takes.

Law: a phase that raises stays the current one, so that a fault is counted under it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """The current phase of a piece of work, and the `seconds` of each finished phase, in order."""

    def __init__(self, current: str) -> None:
        self.current = current
        self.seconds: tuple[tuple[str, float], ...] = ()

    def timed(self, name: str) -> "_Phase":
        """Context manager: the block is a phase. If it raises, the phase stays current and gets no duration."""
        return _Phase(self, name)

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Context manager: the block is a phase for faults only; its time belongs to the surrounding phase."""
        before, self.current = self.current, name
        yield
        self.current = before


class _Phase:
    """A block that is a phase. It is a class because a generator costs three times as much."""

    __slots__ = ("_before", "_name", "_phases", "_started_at")

    def __init__(self, phases: Phases, name: str) -> None:
        self._phases, self._name, self._before = phases, name, phases.current

    def __enter__(self) -> None:
        """Begin the phase."""
        self._phases.current, self._started_at = self._name, time.monotonic()

    def __exit__(self, kind: object, *_: object) -> None:
        """End the phase; after an error it stays current."""
        if kind is None:
            phases = self._phases
            phases.seconds += ((self._name, time.monotonic() - self._started_at),)
            phases.current = self._before
