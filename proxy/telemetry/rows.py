"""How the table of metrics becomes collectors.

Law: it names no metric.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Generic, Protocol, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric

MAX_CHILDREN = 1024  # label combinations of one collector that are cached; chosen above what MAX_MODEL_LABELS allows
_UNITS = ("seconds", "ratio", "usd", "tokens")
"""Units that OpenMetrics names: that with which a metric's name ends."""

C = TypeVar("C", Counter, Gauge, Histogram)


class Registry(CollectorRegistry):
    """A registry without the `..._created` series, which hold the start time of each other series.

    They would be a third of all series, and Prometheus does not use them in this text format. The library's own switch
    would affect every registry of the process, so it is not used.
    """

    def collect(self) -> Iterator[Metric]:
        """All metrics, without those series."""
        for family in super().collect():
            family.samples = [sample for sample in family.samples if sample.name != f"{family.name}_created"]
            yield family


def read_version() -> str:
    """The version of trimtab that runs."""
    try:
        return version("trimtab")
    except PackageNotFoundError:  # run from its sources, not installed
        return "unknown"


class Registered(Protocol):
    """An object whose attributes are collectors in its registry."""

    registry: CollectorRegistry


class Row(Generic[C]):
    """A row of the table: how to make a collector. Read from a `Metrics`, it returns that object's collector.

    As with `functools.cached_property`, the first access stores the collector in an attribute of the same name.
    """

    def __init__(self, kind: type[C], documentation: str, labels: str = "", *, name: str = "", **options: Any) -> None:
        self._name, self._attribute, self._unit = name, "", ""
        self._make: Callable[..., C] = partial(kind, documentation=documentation, labelnames=labels.split(), **options)

    def __set_name__(self, _: type, name: str) -> None:
        self._name, self._attribute = f"trimtab_{self._name or name}", name
        self._unit = next((unit for unit in _UNITS if self._name.endswith(f"_{unit}")), "")

    def __get__(self, metrics: Registered, _: type) -> C:
        collector = self._make(self._name, unit=self._unit, registry=metrics.registry)
        # Cached, because the library takes a lock and builds strings at each look-up of labels.
        collector.labels = lru_cache(MAX_CHILDREN)(collector.labels)  # type: ignore[method-assign]
        vars(metrics)[self._attribute] = collector
        return collector
