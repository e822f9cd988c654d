"""How long a worker that died stays away.

Law: one that dies once is back at once; one that dies again and again does not keep the machine busy.
"""

from dataclasses import dataclass

HEALTHY_SECONDS = 10.0
"""A worker that has run for so long works: its end is the first again."""
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0


@dataclass(slots=True)
class Restarts:
    """The ends of one worker: how many there were in all, and how many in a row that came soon."""

    total: int = 0
    in_a_row: int = 0

    def note(self, lived_seconds: float) -> float:
        """It has died after so long; the seconds until it is to be started again."""
        self.total += 1
        self.in_a_row = 1 if lived_seconds >= HEALTHY_SECONDS else self.in_a_row + 1
        if self.in_a_row == 1:
            return 0.0
        return min(FIRST_PAUSE_SECONDS * 2.0 ** min(self.in_a_row - 2, 10), MAX_PAUSE_SECONDS)
