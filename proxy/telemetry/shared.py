"""Metrics of several processes at one address. Each process writes its values to files that all of them read.

The files are prometheus_client's own format for several processes, in a folder in memory.

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
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, values
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable in which prometheus_client looks for the folder."""
FOLDER_PREFIX = "trimtab-metrics-"
DRAFT_PREFIX = "trimtab-new-metrics-"
LOCK_NAME = "lock"
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - our folder in it is readable by its owner only
"""Files there never wait for a disk, and are writable even if the root file system is read-only."""
SUPERVISOR = "supervisor"
_OF_ONE_PROCESS = ("process_", "python_gc_")
"""Prefixes of metrics that describe a single process."""
_ROW = struct.Struct("qq")


class Roster:
    """The process of each worker and its number of restarts. The supervisor writes it, all processes read it.

    It is memory shared with forked processes. Workers are numbered from 1.
    """

    def __init__(self, workers: int) -> None:
        self._rows = mmap.mmap(-1, workers * _ROW.size)
        self.workers = workers

    def write(self, number: int, pid: int, restarts: int) -> None:
        """Set the process of a worker, 0 for none."""
        place = (number - 1) * _ROW.size
        self._rows[place : place + _ROW.size] = _ROW.pack(pid, restarts)

    def read(self) -> list[tuple[int, int, int]]:
        """Number, process and restarts of each worker."""
        return [(number, *_ROW.unpack_from(self._rows, (number - 1) * _ROW.size)) for number in self.numbers]

    @property
    def numbers(self) -> range:
        """The numbers of all workers."""
        return range(1, self.workers + 1)


@dataclass(frozen=True, slots=True)
class SharedMetrics:
    """The folder in which the workers of one supervisor write their values; made before the first fork.

    lock: a file lock held by every living process of this run, so that no other run removes the folder.
    started_at: when the run began, in seconds since 1970.
    """

    path: Path
    roster: Roster
    lock: int
    supervisor_pid: int = field(default_factory=os.getpid)
    started_at: float = field(default_factory=time.time)

    @classmethod
    def open(cls, workers: int, places: Sequence[Path] = (MEMORY_FOLDER,)) -> "SharedMetrics":
        """Make a folder in the first writable place, else in the folder for temporary files.

        Folders left by earlier runs that were killed are removed. Raises OSError.
        """
        place = next((place for place in places if os.access(place, os.W_OK)), Path(tempfile.gettempdir()))
        _sweep(place)
        draft = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=place))
        lock = os.open(draft / LOCK_NAME, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = place / draft.name.replace(DRAFT_PREFIX, FOLDER_PREFIX)
        draft.rename(path)  # from now on `_sweep` of other runs finds it, and finds it locked
        return cls(path, Roster(workers), lock)

    def write_as(self, number: int) -> None:
        """Write all later values of this process as those of this worker."""
        os.environ[FOLDER_VARIABLE] = str(self.path)
        values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]

    def forget(self, number: int) -> None:
        """Drop the gauges of a worker that died; its counters stay."""
        mark_process_dead(number, str(self.path))  # type: ignore[no-untyped-call]

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
    """The metrics of all workers together, and the process metrics of each.

    own: the registry of this process, which knows the kind and help of each metric.
    """

    def __init__(self, own: CollectorRegistry, shared: SharedMetrics) -> None:
        self._own = own
        self._shared = shared

    def collect(self) -> Iterator[Metric]:
        """Every metric. Reads files, which takes some milliseconds for a thousand series."""
        counted = MultiProcessCollector(None, str(self._shared.path)).collect()  # type: ignore[no-untyped-call]
        merged: dict[str, Metric] = {family.name: family for family in counted}
        for family in self._own.collect():
            if family.name.startswith(_OF_ONE_PROCESS):
                continue
            if family.name in merged:
                family.samples = merged[family.name].samples
            yield family
        yield from self._collect_roster()
        yield from self._collect_processes()

    def _collect_roster(self) -> Iterable[Metric]:
        up = GaugeMetricFamily("trimtab_worker_up", "Whether this worker runs.", labels=["worker"])
        restarts = CounterMetricFamily(
            "trimtab_worker_restarts", "How often this worker was started again.", labels=["worker"]
        )
        for number, pid, count in self._shared.roster.read():
            up.add_metric([str(number)], float(pid != 0))
            restarts.add_metric([str(number)], count)
        return up, restarts

    def _collect_processes(self) -> Iterable[Metric]:
        pids = {str(number): pid for number, pid, _ in self._shared.roster.read() if pid}
        families: dict[str, Metric] = {}
        for name, pid in ({SUPERVISOR: self._shared.supervisor_pid} | pids).items():
            for family in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                whole = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    whole.add_sample(sample.name, {"worker": name}, sample.value)
        return families.values()
