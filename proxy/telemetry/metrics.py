"""Every Prometheus collector, and what is recorded of one request.

Law: names and labels are a contract with users. No label value comes from a client unless an upstream has vouched
for it.
"""

import platform
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    Metric,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from proxy.telemetry.shared import AllWorkers, SharedMetrics
from rules.conversation import Decision

MAX_MODEL_LABELS = 50
MAX_LABEL_CHARS = 128
MAX_CHILDREN = 1024
"""Of one collector, whose labels are found at once."""
OTHER = "other"

_OVERHEAD_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1, 5, 30)
_SECONDS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_RATE_BUCKETS = (1, 5, 10, 20, 40, 80, 160, 320, 640)
_RATIO_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.5)
_ERROR_BUCKETS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 4, 8)
_PREFIX_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)

C = TypeVar("C", Counter, Gauge, Histogram)


class _Registry(CollectorRegistry):
    """A registry without the series `..._created`, which tell when each other series began.

    They would be a third of all, and in this text form Prometheus has no use for them. The library's own switch is for
    all registries of the process at once, so it is not used.
    """

    def collect(self) -> Iterator[Metric]:
        for family in super().collect():
            family.samples = [sample for sample in family.samples if sample.name != f"{family.name}_created"]
            yield family


def _read_version() -> str:
    try:
        return version("trimtab")
    except PackageNotFoundError:  # run from its sources, not installed
        return "unknown"


class _Row(Generic[C]):
    """A row of the table: what a collector is made by. Read from a Metrics, it is that one's collector.

    As with `functools.cached_property`, the collector stands in an attribute of the same name from the first look on.
    """

    def __init__(self, kind: type[C], documentation: str, labels: str = "", *, name: str = "", **options: Any) -> None:
        self._name, self._attribute = name, ""
        self._make: Callable[..., C] = partial(kind, documentation=documentation, labelnames=labels.split(), **options)

    def __set_name__(self, _: type, name: str) -> None:
        self._name, self._attribute = f"trimtab_{self._name or name}", name

    def __get__(self, metrics: "Metrics", _: type) -> C:
        collector = self._make(self._name, registry=metrics.registry)
        # The library takes a lock and builds strings each time that labels are looked up.
        collector.labels = lru_cache(MAX_CHILDREN)(collector.labels)  # type: ignore[method-assign]
        vars(metrics)[self._attribute] = collector
        return collector


class Metrics:
    """The collectors of one proxy, in a registry of its own: kind, help, labels, and the name if it is not the same.

    If they are `shared`, they are those of one worker of several, which has said whose values it writes.
    """

    requests = _Row(Counter, "Requests answered.", "model endpoint status outcome")
    in_flight = _Row(Gauge, "Requests being served.", name="requests_in_flight", multiprocess_mode="livesum")
    prompt_tokens = _Row(Counter, "Prompt tokens, as the client sent them and as forwarded.", "model stage")
    tokens_saved = _Row(Counter, "Prompt tokens saved, gross.", "model rule")
    tokens_added = _Row(Counter, "Prompt tokens that a rule had to add.", "model rule")
    completion_tokens = _Row(Counter, "Completion tokens.", "model source")
    context_used = _Row(
        Histogram, "Prompt tokens forwarded over the limit.", "model", name="context_used_ratio", buckets=_RATIO_BUCKETS
    )
    estimate_error = _Row(
        Histogram,
        "Prompt tokens reported by the upstream over our estimate.",
        "model",
        name="estimate_error_ratio",
        buckets=_ERROR_BUCKETS,
    )
    policy_changes = _Row(Counter, "Changes of what is known of a model, each of which may move a cut.", "model cause")
    overflow_retries = _Row(
        Counter, "Refusals for the length of the prompt, by what became of the second attempt.", "model result"
    )
    silent_truncations = _Row(
        Counter,
        "Answers that report far fewer prompt tokens than were sent, as an upstream does that cuts prompts short.",
        "model",
    )
    fail_open = _Row(Counter, "Faults inside compaction; the request went on without what was at fault.", "phase")
    summaries = _Row(Counter, "Summaries wanted, by how they came.", "model result")
    summary_tokens = _Row(Counter, "What summaries cost, as the upstream reported it, else as counted.", "model kind")
    summary_seconds = _Row(
        Histogram, "Calls for summaries, by how they ended.", "model result", buckets=_SECONDS_BUCKETS
    )
    store_errors = _Row(Counter, "Operations of the summaries' store that failed.", "store")
    prefix_kept = _Row(
        Histogram,
        "Share of the prompt tokens sent that began the session's request before, too, byte for byte.",
        "model",
        name="prefix_kept_ratio",
        buckets=_PREFIX_BUCKETS,
    )
    cuts = _Row(Counter, "Requests forwarded with a cut, by what stands for the cut part.", "model kind")
    overhead = _Row(
        Histogram, "Time added before the request left.", "phase", name="overhead_seconds", buckets=_OVERHEAD_BUCKETS
    )
    time_to_first_token = _Row(
        Histogram,
        "From the request's arrival to the first text of a stream, reasoning and tool calls included.",
        "model",
        name="time_to_first_token_seconds",
        buckets=_SECONDS_BUCKETS,
    )
    upstream_seconds = _Row(
        Histogram, "From sending the request to the answer's last byte.", "model", buckets=_SECONDS_BUCKETS
    )
    output_rate = _Row(
        Histogram,
        "Completion tokens of a stream by the time in which they came, its first chunk left out.",
        "model",
        name="output_tokens_per_second",
        buckets=_RATE_BUCKETS,
    )

    def __init__(self, shared: SharedMetrics | None = None) -> None:
        self.registry: CollectorRegistry = _Registry()
        self.is_shared = shared is not None
        self._page: Collector = self.registry if shared is None else AllWorkers(self.registry, shared)
        self._models: set[str] = set()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        build = Info("trimtab_build", "The version that runs.", registry=self.registry)
        build.info({"version": _read_version(), "python": platform.python_version()})
        for row in vars(Metrics).values():
            if isinstance(row, _Row):
                row.__get__(self, Metrics)  # a series without a value is on the page, too

    def label_model(self, model: str, match: str | None) -> str:
        """The label of a model: the configuration's glob that it matches, a name vouched for, else `other`."""
        if match is not None:
            return match
        return model if model in self._models else OTHER

    def vouch_for(self, model: str) -> None:
        """An upstream has answered for this model with success, so that its name may be a label."""
        if model.isprintable() and 0 < len(model) <= MAX_LABEL_CHARS and len(self._models) < MAX_MODEL_LABELS:
            self._models.add(model)

    def record_decisions(self, model: str, decisions: Iterable[Decision]) -> None:
        """Count what each rule saved or added, and which cut stands."""
        for decision in decisions:
            saved = decision.saved_tokens
            if saved >= 0:
                self.tokens_saved.labels(model, decision.rule).inc(saved)
            else:
                self.tokens_added.labels(model, decision.rule).inc(-saved)
            if decision.rule in {"prune", "summarise", "digest"}:
                self.cuts.labels(model, decision.rule).inc()

    def render(self) -> bytes:
        """All of it in Prometheus' text form, of all workers if the values are shared."""
        return generate_latest(self._page)
