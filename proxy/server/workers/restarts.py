"""The pause before a dead worker is started again.

Law: a worker that dies once comes back at once. One that keeps dying does not keep the machine busy.
"""

from dataclasses import dataclass

HEALTHY_SECONDS = 10.0
"""A worker that ran this long counts as healthy: its end is the first in a row. Chosen: several times its start."""
# Chosen: a pause doubles from the first to the longest, which still brings service back within a minute.
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0


@dataclass(slots=True)
class Restarts:
    """The deaths of one worker: `total`, and how many came soon after a start, `in_a_row`."""

    total: int = 0
    in_a_row: int = 0

    def note(self, lived_seconds: float) -> float:
        """Note a death; return the seconds to wait before the worker is started again."""
        self.total += 1
        self.in_a_row = 1 if lived_seconds >= HEALTHY_SECONDS else self.in_a_row + 1
        if self.in_a_row == 1:
            return 0.0
        return min(FIRST_PAUSE_SECONDS * 2.0 ** min(self.in_a_row - 2, 10), MAX_PAUSE_SECONDS)
