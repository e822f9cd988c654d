"""Metrics of several processes at one address. Each process keeps its numbers in files that all of them read.

The files are in a folder in memory. Of each worker there are two: `.values` is an array of numbers that its process has
mapped, and each line of `.names` says which of them are those of a label set.

Law: a file belongs to the number of a worker, not to its process, so the successor of a dead worker continues its
counters. Gauges of a dead process are dropped. A folder is never read by another run, and the last process removes it.
"""

import fcntl
import mmap
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from trimtab.proxy.telemetry.families import AnyFamily, Labels, Numbers, read_lines

FOLDER_PREFIX = "trimtab-metrics-"
DRAFT_PREFIX = "trimtab-new-metrics-"
LOCK_NAME = "lock"
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - our folder in it is readable by its owner only
"""Files there never wait for a disk, and are writable even if the root file system is read-only."""
SUPERVISOR = "supervisor"
_OF_ONE_PROCESS = ("process_", "python_gc_")  # Prefixes of metrics that describe a single process
_ROW = struct.Struct("qq")
_READING = struct.Struct("dd")


class Roster:
    """The process of each worker, numbered from 1, and its restarts, in memory that forked processes share."""

    def __init__(self, workers: int) -> None:
        self._rows = mmap.mmap(-1, workers * _ROW.size)
        self.workers = workers

    def write(self, number: int, pid: int, restarts: int) -> None:
        """Set the process of a worker, 0 for none."""
        place = (number - 1) * _ROW.size
        self._rows[place : place + _ROW.size] = _ROW.pack(pid, restarts)

    def read(self) -> list[tuple[int, int, int]]:
        return [(number, *_ROW.unpack_from(self._rows, (number - 1) * _ROW.size)) for number in self.numbers]

    @property
    def numbers(self) -> range:
        return range(1, self.workers + 1)


class Reloads:
    """Whether the last reading of the configuration succeeded, and when one last did (since 1970); forks share it."""

    def __init__(self, at: float) -> None:
        self._row = mmap.mmap(-1, _READING.size)
        self.write(at)

    def write(self, at: float | None) -> None:
        """Note that it was read at this time; None if it could not be."""
        last_at = self.read()[1] if at is None else at
        self._row[:] = _READING.pack(float(at is not None), last_at)

    def read(self) -> tuple[bool, float]:
        is_valid, at = _READING.unpack(self._row[:])
        return bool(is_valid), at


class SharedMetrics(msgspec.Struct, frozen=True):
    """The folder of the workers' values; made before the first fork. started_at: in seconds since 1970.

    lock: a file lock held by every living process of this run, so that no other run removes the folder.
    """

    path: Path
    roster: Roster
    lock: int
    supervisor_pid: int = msgspec.field(default_factory=os.getpid)
    reloads: Reloads = msgspec.field(default_factory=lambda: Reloads(time.time()))
    started_at: float = msgspec.field(default_factory=time.time)

    @classmethod
    def open(cls, workers: int, places: Sequence[Path] = (MEMORY_FOLDER,)) -> "SharedMetrics":
        """Make a folder in the first writable place, else a temporary one; drop those of ended runs. Raises OSError."""
        place = next((place for place in places if os.access(place, os.W_OK)), Path(tempfile.gettempdir()))
        _sweep(place)
        draft = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=place))
        lock = os.open(draft / LOCK_NAME, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = place / draft.name.replace(DRAFT_PREFIX, FOLDER_PREFIX)
        draft.rename(path)  # from now on `_sweep` of other runs finds it, and finds it locked
        return cls(path, Roster(workers), lock)

    def open_numbers(self, number: int) -> "Numbers":
        return Numbers(self.path / f"{number}.names", self.path / f"{number}.values")

    def read_numbers(self, number: int) -> Iterator[tuple[str, Labels, Sequence[float]]]:
        names, values = self.path / f"{number}.names", self.path / f"{number}.values"
        lines = list(read_lines(names))  # before the values, which are longer by then
        cells = memoryview(values.read_bytes()).cast("d") if lines else ()
        return ((name, labels, cells[place : place + size]) for name, labels, place, size in lines)

    def close(self) -> None:
        """Remove the folder. To be called by the last process."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def _sweep(place: Path) -> None:
    """Remove the folders of runs that have ended. Folders of other users stay."""
    for path in place.glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):
            lock = os.open(path / LOCK_NAME, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


class AllWorkers(Collector):
    """The metrics of all workers, and the process metrics of each. own: for what is not counted. table: as declared."""

    def __init__(self, own: CollectorRegistry, shared: SharedMetrics, table: Sequence[AnyFamily]) -> None:
        self._own = own
        self._shared = shared
        self._table = table

    def collect(self) -> Iterator[Metric]:
        totals = {family.name: family.begin() for family in self._table if family.is_shared}
        for number, pid, _ in self._shared.roster.read():
            for name, labels, cells in self._shared.read_numbers(number):
                if pid or totals[name].kind != "gauge":
                    totals[name].add_cells(labels, cells)
        for metric in self._own.collect():
            if not metric.name.startswith(_OF_ONE_PROCESS):
                total = totals.get(metric.name)
                yield metric if total is None else total.read(is_sorted=True)
        up = GaugeMetricFamily("trimtab_worker_up", "Whether this worker runs: 1 or 0.", labels=["worker"])
        restarts = CounterMetricFamily(
            "trimtab_worker_restarts", "How often this worker was started again.", labels=["worker"]
        )
        for number, pid, count in self._shared.roster.read():
            up.add_metric([str(number)], float(pid != 0))
            restarts.add_metric([str(number)], count)
        yield from (up, restarts, *self._collect_processes())

    def _collect_processes(self) -> Iterable[Metric]:
        pids = {str(number): pid for number, pid, _ in self._shared.roster.read() if pid}
        families: dict[str, Metric] = {}
        for name, pid in ({SUPERVISOR: self._shared.supervisor_pid} | pids).items():
            for family in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                whole = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    whole.add_sample(sample.name, {"worker": name}, sample.value)
        return families.values()
