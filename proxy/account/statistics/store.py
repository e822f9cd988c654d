"""What a store of statistics promises, and the one in memory.

Law: a batch counts once, however often it is written, because a store that did not answer may have kept it.
"""

from dataclasses import dataclass
from typing import Protocol

from proxy.account.statistics.sums import KEPT_DAYS, Place, Rows, Sums, go_back


@dataclass(frozen=True, slots=True)
class Batch:
    """Sums to add. `writer` has written all batches before this `number`. `today`: the day of the writing, in UTC."""

    writer: str
    number: int
    today: str
    rows: Rows

    @property
    def oldest_day(self) -> str:
        """The oldest day that is kept."""
        return go_back(self.today, KEPT_DAYS)


class StatisticsStore(Protocol):
    """Sums by place. Several processes may add to them at the same time."""

    name: str

    async def add(self, batch: Batch) -> None:
        """Add a batch, unless it was added before, and delete what is too old. Raises StoreError."""

    async def read(self, first_day: str, today: str) -> dict[Place, Sums]:
        """The sums of these days. Raises StoreError."""

    async def close(self) -> None:
        """Close files and connections."""


class MemoryStatistics:
    """Sums of this process."""

    name = "memory"

    def __init__(self) -> None:
        self._rows: dict[Place, Sums] = {}
        self._numbers: dict[str, int] = {}

    async def add(self, batch: Batch) -> None:
        """Add a batch, unless it was added before."""
        if batch.number > self._numbers.get(batch.writer, 0):
            self._numbers[batch.writer] = batch.number
            for place, sums in batch.rows.items():
                self._rows[place] = self._rows.get(place, Sums()) + sums
            self._rows = {place: sums for place, sums in self._rows.items() if place.day >= batch.oldest_day}

    async def read(self, first_day: str, today: str) -> dict[Place, Sums]:
        """The sums of these days."""
        return {place: sums for place, sums in sorted(self._rows.items()) if first_day <= place.day <= today}

    async def close(self) -> None:
        """Do nothing; there is nothing to release."""
