"""Families of metrics: numbers by labels. To count is to add to a plain number; samples are made at the scrape.

    metrics.cuts[model, kind] += 1
    metrics.overhead.observe(phase, seconds)

Labels are in the order of their names: a string for a single one, else a tuple.

Law: it names no metric. To count takes no lock, so threads beside the event loop exclude each other.
"""

import mmap
import os
import threading
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias, TypeVar

import orjson
from prometheus_client import Metric
from prometheus_client.utils import floatToGoString

Labels = str | tuple[str, ...]
Cells: TypeAlias = "list[float] | memoryview[float]"
V = TypeVar("V")

_BLOCK_CELLS = 8192  # A file of values grows by so many. In bytes, it is a multiple of the page size of every system.
_UNITS = ("seconds", "ratio", "usd", "tokens")  # Units that OpenMetrics names: that with which a metric's name ends


class Numbers:
    """The numbers of a worker, of which its process changes any by writing to memory; others read the files."""

    def __init__(self, names: Path, values: Path) -> None:
        self._names, self._values = names, values
        self._blocks: list[memoryview[float]] = []
        self._end = 0
        self._lock = threading.Lock()
        self._found: dict[str, dict[Labels, memoryview[float]]] = {}
        for name, labels, place, size in read_lines(names):
            self._found.setdefault(name, {})[labels] = self._map(place, size)

    def find(self, name: str) -> "dict[Labels, memoryview[float]]":
        return self._found.get(name, {})

    def open(self, name: str, labels: Labels, size: int) -> "memoryview[float]":
        """New cells, all zero. If there is no space for them, only this process knows them."""
        with self._lock, suppress(OSError):
            return self._open(name, labels, size)
        return memoryview(bytearray(8 * size)).cast("d")

    def _open(self, name: str, labels: Labels, size: int) -> "memoryview[float]":
        left = -self._end % _BLOCK_CELLS
        place = self._end + (left if left < size else 0)
        cells = self._map(place, size)
        with self._names.open("ab") as file:
            file.write(b"\n" + orjson.dumps((name, labels, place, size)) + b"\n")
        return cells

    def _map(self, place: int, size: int) -> "memoryview[float]":
        """Cells of the file, which grows if it must."""
        self._end = place + size
        block, first = divmod(place, _BLOCK_CELLS)
        with self._values.open("ab+") as file:
            while block >= len(self._blocks):
                length = _BLOCK_CELLS * 8
                start = len(self._blocks) * length
                missing = start + length - file.seek(0, os.SEEK_END)
                if missing > 0:  # real zeros: a hole, if the memory is full, ends the process that writes to it
                    file.write(bytes(missing))
                    file.flush()
                self._blocks.append(memoryview(mmap.mmap(file.fileno(), length, offset=start)).cast("d"))
        return self._blocks[block][first : first + size]


def read_lines(names: Path) -> Iterator[tuple[str, Labels, int, int]]:
    """The family and labels of each series of a worker, and place and number of its cells."""
    with suppress(FileNotFoundError):
        for line in names.read_bytes().splitlines():
            with suppress(ValueError):  # no line, or half of one: its writer is at it, or was killed
                name, labels, place, size = orjson.loads(line)
                yield name, labels if isinstance(labels, str) else tuple(labels), place, size


class Family(dict[Labels, V]):
    """The series of a metric, one for each registry. is_shared: whether workers show the sum of what each has."""

    def __init__(self, kind: str, meaning: str, labels: str = "", *, name: str = "") -> None:
        self.kind, self.name, self.meaning, self.labels = kind, name, meaning, tuple(labels.split())
        self.is_shared = True

    def __set_name__(self, _: type, attribute: str) -> None:
        self.name = f"trimtab_{self.name or attribute}"

    @abstractmethod
    def begin(self, storage: Numbers | None = None) -> "Family[V]":
        """A family as declared. Its series lie in the storage, if there is one, and go on from what is there."""

    @abstractmethod
    def add_cells(self, labels: Labels, cells: Sequence[float]) -> None:
        """Add what a process has stored."""

    @abstractmethod
    def _add_samples(self, metric: Metric, labels: dict[str, str], value: V) -> None: ...

    def read(self, *, is_sorted: bool = False) -> Metric:
        """The series as Prometheus' library has them, in the order in which they were first counted, or of labels."""
        unit = next((unit for unit in _UNITS if self.name.endswith(f"_{unit}")), "")
        metric = Metric(self.name, self.meaning, self.kind, unit)
        series = [(self._name(labels), value) for labels, value in self.copy().items()]  # a thread makes the page
        for labels, value in sorted(series, key=lambda one: sorted(one[0].items())) if is_sorted else series:
            self._add_samples(metric, labels, value)
        return metric

    def _name(self, labels: Labels) -> dict[str, str]:
        return dict(zip(self.labels, (labels,) if isinstance(labels, str) else labels, strict=True))


class Counter(Family[float]):
    """Sums. One that was never added to is 0, and has no series."""

    def __init__(self, meaning: str, labels: str = "", *, name: str = "") -> None:
        super().__init__("counter", meaning, labels, name=name)

    def __missing__(self, labels: Labels) -> float:
        return 0

    def begin(self, storage: Numbers | None = None) -> "Counter":
        return copy(self) if storage is None or not self.is_shared else _StoredCounter(self, storage)

    def add_cells(self, labels: Labels, cells: Sequence[float]) -> None:
        self[labels] += cells[0]

    def _add_samples(self, metric: Metric, labels: dict[str, str], value: float) -> None:
        metric.add_sample(f"{self.name}_total" if self.kind == "counter" else self.name, labels, float(value))


class Gauge(Counter):
    """A value without labels, at `[()]`. If it is not shared, each of several workers shows its own."""

    def __init__(self, meaning: str, *, name: str = "", is_shared: bool = False) -> None:
        super().__init__(meaning, name=name)
        self.kind, self.is_shared, self[()] = "gauge", is_shared, 0


class _StoredCounter(Counter):
    def __init__(self, declared: Counter, storage: Numbers) -> None:
        vars(self).update(vars(declared))
        self._storage, self._cells = storage, storage.find(declared.name)
        for labels, cells in self._cells.items():
            super().__setitem__(labels, cells[0])
        for labels in declared:
            self[labels] = 0  # a gauge of a process that ended

    def __setitem__(self, labels: Labels, value: float) -> None:
        super().__setitem__(labels, value)
        cells = self._cells.get(labels)
        if cells is None:
            cells = self._cells[labels] = self._storage.open(self.name, labels, 1)
        cells[0] = value


class Histogram(Family[Cells]):
    """Values by buckets: their counts, then the sum. buckets: ascending highest values; one more has no end."""

    def __init__(self, meaning: str, labels: str = "", *, name: str = "", buckets: tuple[float, ...]) -> None:
        super().__init__("histogram", meaning, labels, name=name)
        self.buckets = buckets
        self._storage: Numbers | None = None

    def __missing__(self, labels: Labels) -> Cells:
        size = len(self.buckets) + 2
        cells = self[labels] = self._storage.open(self.name, labels, size) if self._storage else [0.0] * size
        return cells

    def begin(self, storage: Numbers | None = None) -> "Histogram":
        begun = copy(self)
        if storage is not None:
            begun._storage = storage  # noqa: SLF001 - of its own class
            begun.update(storage.find(self.name))
        return begun

    def observe(self, labels: Labels, value: float) -> None:
        observe_all(((self, labels, value),))

    def add_cells(self, labels: Labels, cells: Sequence[float]) -> None:
        own = self[labels]
        for place, number in enumerate(cells):
            own[place] += number

    def _add_samples(self, metric: Metric, labels: dict[str, str], value: Cells) -> None:
        *counts, total = value
        sums = list(accumulate(counts))
        for bound, number in zip((*self.buckets, float("inf")), sums, strict=True):
            metric.add_sample(f"{self.name}_bucket", {**labels, "le": floatToGoString(bound)}, float(number))  # type: ignore[no-untyped-call]
        metric.add_sample(f"{self.name}_count", labels, float(sums[-1]))
        metric.add_sample(f"{self.name}_sum", labels, float(total))


def observe_all(values: "Iterable[tuple[Histogram, Labels, float]]") -> None:
    for histogram, labels, value in values:
        cells = histogram[labels]
        cells[bisect_left(histogram.buckets, value)] += 1
        cells[-1] += value


AnyFamily = Counter | Histogram
