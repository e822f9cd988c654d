"""docs/reference/metrics.md, from the table of metrics: names, types, labels and help; and PromQL examples."""

from collections.abc import Iterator
from dataclasses import dataclass

from handbook.reference.queries import LABELS, QUERIES
from handbook.tables import code, plain, write_table
from trimtab.proxy.telemetry.families import Counter, Histogram
from trimtab.proxy.telemetry.metrics import Metrics

INTRODUCTION = """\
# Metrics

This page lists every metric that trimtab reports at `/metrics`: in Prometheus' text format, or as OpenMetrics
if the request's `Accept` names `application/openmetrics-text`. It is rendered at most once a second, for all readers
together, so an answer may take a second; it is never older than the request for it.

The key [`metrics_path`](configuration.md#metrics_path) sets another path, and
[`metrics_listen`](configuration.md#metrics_listen) another address. A histogram `NAME` has the series `NAME_bucket`,
`NAME_sum` and `NAME_count`.

## trimtab's own metrics
"""
UNITS = {
    "_timestamp_seconds": "seconds since 1970",
    "_seconds": "seconds",
    "_ratio": "ratio",
    "_tokens_per_second": "tokens per second",
    "_usd": "US dollars",
    "_tokens": "tokens",
}
"""The unit by the end of a metric's name. Other names: tokens if the name contains `tokens`, events for a counter."""
QUERIES_HEAD = """\
## Queries

`trimtab_prompt_tokens_total` counts by trimtab's estimate, but [`trimtab stats`](../guides/what-did-it-save.md) in the
tokens that the upstream reports, so their sums differ by some percent."""
_TITLES = ("Metric", "Type, unit", "Labels", "Meaning")


@dataclass(frozen=True, slots=True)
class Collector:
    """One metric: its name as Prometheus shows it, its type, its labels and its help."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    @property
    def unit(self) -> str:
        """The unit of what it counts or measures."""
        name = self.name.removesuffix("_total")
        found = next((unit for end, unit in UNITS.items() if name.endswith(end)), None)
        return found or ("tokens" if "tokens" in self.name else "events" if self.kind == "counter" else "number")


def list_collectors(metrics: Metrics) -> list[Collector]:
    """Trimtab's own metrics, in the order of their table."""
    found = [one for one in vars(metrics).values() if isinstance(one, Counter | Histogram)]
    ends = {"counter": "_total"}
    return [Collector(f"{one.name}{ends.get(one.kind, '')}", one.kind, one.labels, one.meaning) for one in found]


def write() -> str:
    """The page."""
    metrics = Metrics()
    collectors = list_collectors(metrics)
    rows = [(code(one.name), f"{one.kind}, {one.unit}", _join(one.labels), plain(one.help)) for one in collectors]
    parts = [INTRODUCTION, write_table(_TITLES, rows), "## Labels\n"]
    parts += [write_table(("Label", "Metrics", "Values"), _list_labels(collectors)), QUERIES_HEAD]
    parts += [f"\n{query.title}:\n\n```promql\n{query.text}\n```" for query in QUERIES]
    titles = ("Metric", "Type", "Labels", "Meaning")
    parts += ["\n## Metrics of the process", PROCESS, write_table(titles, _list_others(metrics))]
    return "\n".join(parts)


PROCESS = """
`trimtab_build_info` is always 1. Its labels name the versions of trimtab and of Python. The other metrics in this table
come from the library prometheus_client. Those whose names begin with `process_` exist on Linux only.

With several `workers`, each `process_` metric has the label `worker` (`1`, `2`, ... and `supervisor`), and there are no
`python_gc_` metrics. `trimtab_worker_up` and `trimtab_worker_restarts_total` then report each worker's state by the
same label.
"""


def _join(labels: tuple[str, ...]) -> str:
    return ", ".join(map(code, labels))


def _list_labels(collectors: list[Collector]) -> Iterator[tuple[str, str, str]]:
    for label in LABELS:
        users = [one.name for one in collectors if label.name in one.labels]
        shown = (label.metric,) if label.metric else tuple(users) if len(users) <= 2 else ()
        yield code(label.name), _join(shown) or "every metric with this label", label.values


def _list_others(metrics: Metrics) -> Iterator[tuple[str, ...]]:
    own = {collector.name.removesuffix("_total") for collector in list_collectors(metrics)}
    for family in metrics.registry.collect():
        if family.name not in own:
            end = {"counter": "_total", "info": "_info"}.get(family.type, "")
            labels = sorted({name for sample in family.samples for name in sample.labels})
            yield code(f"{family.name}{end}"), family.type, _join(tuple(labels)), plain(family.documentation)
