"""The samples of the metrics at one moment, and sums over them.

Law: every number is a sum over series of the metrics page, or the mean of one of its histograms.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client import Metric

UNFINISHED = frozenset({"broken", "aborted"})
"""The outcomes of answers that are not complete. Source: docs/reference/metrics.md."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of the metrics by name: labels and value."""

    by_name: defaultdict[str, list[tuple[dict[str, str], float]]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, families: Iterable[Metric]) -> "Samples":
        """The samples of trimtab's own metrics, without buckets."""
        samples = cls()
        for family in families:
            if family.name.startswith("trimtab_"):
                for sample in family.samples:
                    if "le" not in sample.labels:
                        samples.by_name[sample.name].append((sample.labels, sample.value))
        return samples

    def sum(self, name: str, **labels: str) -> float:
        """The sum over the series of a metric with these labels; 0 if there is none."""
        return sum(value for has, value in self.by_name.get(f"trimtab_{name}", ()) if labels.items() <= has.items())

    def count(self, name: str, **labels: str) -> int:
        """As `sum`, for whole numbers."""
        return round(self.sum(name, **labels))

    def mean(self, name: str, **labels: str) -> float | None:
        """The mean of a histogram; None if nothing was observed."""
        number = self.sum(f"{name}_count", **labels)
        return self.sum(f"{name}_sum", **labels) / number if number else None

    def list_values(self, name: str, label: str) -> list[str]:
        """The values of a label, in the order of the page."""
        return list(dict.fromkeys(has[label] for has, _ in self.by_name.get(f"trimtab_{name}", ()) if label in has))

    def count_answered(self, *besides: str, **labels: str) -> int:
        """The requests that got a complete answer with a status of 2xx, without those with one of these outcomes."""
        answered = (
            value
            for has, value in self.by_name.get("trimtab_requests_total", ())
            if labels.items() <= has.items()
            and has["status"].startswith("2")
            and has["outcome"] not in UNFINISHED | {*besides}
        )
        return round(sum(answered))
