"""Metrics of several processes at one address: each writes its values where all of them can read them.

The values are in prometheus_client's own files for several processes, in a folder in memory. Law: a file belongs to the
number of a worker, not to its process, so that a worker which takes the place of a dead one goes on with its counters.
What a dead process had under way is forgotten. A folder is never read by another run, and goes with its last process.
"""

import fcntl
import mmap
import os
import shutil
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, values
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus_client looks for the folder."""
FOLDER_PREFIX = "trimtab-metrics-"
DRAFT_PREFIX = "trimtab-new-metrics-"
LOCK_NAME = "lock"
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - the folder in it is the owner's alone
"""Files there never wait for a disk, and can be written where the root file system cannot."""
SUPERVISOR = "supervisor"
_OF_ONE_PROCESS = ("process_", "python_gc_")
"""Metrics that one process cannot tell for all."""
_ROW = struct.Struct("qq")


class Roster:
    """The process of each worker, and how often it was started again: written by the supervisor, read by all.

    It is memory that a process shares with those that it forks. Workers are numbered from 1.
    """

    def __init__(self, workers: int) -> None:
        self._rows = mmap.mmap(-1, workers * _ROW.size)
        self.workers = workers

    def write(self, number: int, pid: int, restarts: int) -> None:
        """Note the process of a worker, 0 if there is none."""
        place = (number - 1) * _ROW.size
        self._rows[place : place + _ROW.size] = _ROW.pack(pid, restarts)

    def read(self) -> list[tuple[int, int, int]]:
        """Number, process and restarts of each worker."""
        return [(number, *_ROW.unpack_from(self._rows, (number - 1) * _ROW.size)) for number in self.numbers]

    @property
    def numbers(self) -> range:
        """Of all workers."""
        return range(1, self.workers + 1)


@dataclass(frozen=True, slots=True)
class SharedMetrics:
    """Where the workers of one supervisor write their values; made before the first of them is forked.

    The lock is held by whichever of these processes lives, so that nobody else removes the folder.
    """

    path: Path
    roster: Roster
    lock: int
    supervisor_pid: int = field(default_factory=os.getpid)

    @classmethod
    def open(cls, workers: int, places: Sequence[Path] = (MEMORY_FOLDER,)) -> "SharedMetrics":
        """A new folder, in the first of the places that can be written, else where temporary files are.

        Folders that runs before have left there, because they were killed, are removed. Raises OSError.
        """
        place = next((place for place in places if os.access(place, os.W_OK)), Path(tempfile.gettempdir()))
        _sweep(place)
        draft = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=place))
        lock = os.open(draft / LOCK_NAME, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = place / draft.name.replace(DRAFT_PREFIX, FOLDER_PREFIX)
        draft.rename(path)  # from here on it is found by who sweeps, and is locked
        return cls(path, Roster(workers), lock)

    def write_as(self, number: int) -> None:
        """Have every value that is made in this process from now on be written as that worker's."""
        os.environ[FOLDER_VARIABLE] = str(self.path)
        values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]

    def forget(self, number: int) -> None:
        """A worker has died: what it had under way is over. What it has counted stays."""
        mark_process_dead(number, str(self.path))  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Remove the folder: its last process ends."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def _sweep(place: Path) -> None:
    """Remove the folders whose processes have all ended. Those of other users stay."""
    for path in place.glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):
            lock = os.open(path / LOCK_NAME, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


class AllWorkers(Collector):
    """What all workers have counted together, and what each process takes.

    `own` is the registry of the process that is asked: it knows each metric's kind and help.
    """

    def __init__(self, own: CollectorRegistry, shared: SharedMetrics) -> None:
        self._own = own
        self._shared = shared

    def collect(self) -> Iterator[Metric]:
        """Every metric. Reads files: some milliseconds for a thousand series."""
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
