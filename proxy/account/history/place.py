"""The place of this process among several workers, for asking the others.

Law: a value. The sockets are in the folder of the shared metrics, which only this user can open.
"""

from dataclasses import dataclass
from pathlib import Path

from proxy.telemetry.shared import SharedMetrics

MAX_PATH_BYTES = 103
"""Longest path of a Unix domain socket. Source: 108 bytes with the final zero in Linux (unix(7)), 104 in macOS."""


@dataclass(frozen=True, slots=True)
class Place:
    """The worker with this number."""

    number: int
    shared: SharedMetrics

    def socket_of(self, number: int) -> Path | None:
        """The path of a worker's socket; None if it would be too long."""
        path = self.shared.path / f"worker-{number}.sock"
        return path if len(bytes(path)) <= MAX_PATH_BYTES else None

    @property
    def others(self) -> list[int]:
        """The numbers of the other workers, whether they run or not."""
        return [number for number in self.shared.roster.numbers if number != self.number]

    @property
    def stopped(self) -> list[int]:
        """The numbers of the other workers that have no process now. What they kept is gone."""
        return [number for number in self.others if not self.runs(number)]

    def runs(self, number: int) -> bool:
        """Whether a worker has a process."""
        return any(pid for each, pid, _ in self.shared.roster.read() if each == number)
