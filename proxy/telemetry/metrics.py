"""Every Prometheus collector.

Law: names and labels are a contract with users. A client's value becomes a label only after an upstream has answered
for it with success.
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
from rules.tokens.sections import Sections

MAX_MODEL_LABELS = 50  # chosen: bounds the number of series
MAX_LABEL_CHARS = 128  # chosen: longer than real model names
MAX_CHILDREN = 1024  # label combinations of one collector that are cached; chosen above what MAX_MODEL_LABELS allows
OTHER = "other"

_OVERHEAD_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1, 5, 30)
_SECONDS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_RATE_BUCKETS = (1, 5, 10, 20, 40, 80, 160, 320, 640)
_RATIO_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.5)
_ERROR_BUCKETS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 4, 8)
_PREFIX_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)

C = TypeVar("C", Counter, Gauge, Histogram)


class _Registry(CollectorRegistry):
    """A registry without the `..._created` series, which hold the start time of each other series.

    They would be a third of all series, and Prometheus does not use them in this text format. The library's own switch
    would affect every registry of the process, so it is not used.
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
    """A row of the table: how to make a collector. Read from a `Metrics`, it returns that object's collector.

    As with `functools.cached_property`, the first access stores the collector in an attribute of the same name.
    """

    def __init__(self, kind: type[C], documentation: str, labels: str = "", *, name: str = "", **options: Any) -> None:
        self._name, self._attribute = name, ""
        self._make: Callable[..., C] = partial(kind, documentation=documentation, labelnames=labels.split(), **options)

    def __set_name__(self, _: type, name: str) -> None:
        self._name, self._attribute = f"trimtab_{self._name or name}", name

    def __get__(self, metrics: "Metrics", _: type) -> C:
        collector = self._make(self._name, registry=metrics.registry)
        # Cached, because the library takes a lock and builds strings at each look-up of labels.
        collector.labels = lru_cache(MAX_CHILDREN)(collector.labels)  # type: ignore[method-assign]
        vars(metrics)[self._attribute] = collector
        return collector


class Metrics:
    """The collectors of one proxy, in their own registry. Each row: kind, help, labels, and a name if it differs.

    shared: the values of several workers, of which this process is one; None for a single process.
    """

    requests = _Row(Counter, "Requests that have ended, by outcome.", "model endpoint status outcome")
    client_requests = _Row(Counter, "Requests that have ended, by client and outcome.", "client outcome")
    client_tokens = _Row(
        Counter,
        "Tokens by client: prompts as it sent them (original) and as forwarded (sent), and completions (completion).",
        "client stage",
    )
    in_flight = _Row(Gauge, "Requests in flight.", name="requests_in_flight", multiprocess_mode="livesum")
    prompt_tokens = _Row(
        Counter, "Prompt tokens: as the client sent them (original) and as forwarded (sent).", "model stage"
    )
    section_tokens = _Row(
        Counter,
        "Prompt tokens by section: as the client sent them (original) and as forwarded (sent).",
        "model section stage",
    )
    tokens_saved = _Row(
        Counter, "Prompt tokens saved by each rule. The cost of summaries is not subtracted.", "model rule"
    )
    tokens_added = _Row(Counter, "Prompt tokens added by each rule.", "model rule")
    completion_tokens = _Row(Counter, "Completion tokens, as reported by the upstream or estimated.", "model source")
    context_used = _Row(
        Histogram,
        "Forwarded prompt tokens, divided by the limit.",
        "model",
        name="context_used_ratio",
        buckets=_RATIO_BUCKETS,
    )
    estimate_error = _Row(
        Histogram,
        "Prompt tokens reported by the upstream, divided by trimtab's estimate.",
        "model",
        name="estimate_error_ratio",
        buckets=_ERROR_BUCKETS,
    )
    policy_changes = _Row(
        Counter, "Changes of a model's learned window or token ratio. Each may move a cut once.", "model cause"
    )
    overflow_retries = _Row(
        Counter, "Prompts that the upstream refused as too long, by the result of the second attempt.", "model result"
    )
    silent_truncations = _Row(
        Counter,
        "Answers that report far fewer prompt tokens than were sent: the upstream truncates prompts silently.",
        "model",
    )
    fail_open = _Row(Counter, "Faults inside trimtab. The request went on without the part that failed.", "phase")
    summaries = _Row(Counter, "Summaries that cuts needed, by how each was obtained.", "model result")
    summary_tokens = _Row(
        Counter, "Tokens of calls for summaries, as reported by the upstream, else as counted.", "model kind"
    )
    cost_usd = _Row(
        Counter,
        "What answered requests have cost in US dollars, by part of the bill, where prices are known.",
        "model part",
    )
    cost_without_usd = _Row(
        Counter, "What the same requests would have cost in US dollars if they had passed unchanged.", "model"
    )
    summary_seconds = _Row(
        Histogram, "Duration of calls for summaries, by their result.", "model result", buckets=_SECONDS_BUCKETS
    )
    store_errors = _Row(Counter, "Operations of the store that failed.", "store")
    prefix_kept = _Row(
        Histogram,
        "Share of the forwarded prompt tokens that equal the previous request of the session, byte for byte.",
        "model",
        name="prefix_kept_ratio",
        buckets=_PREFIX_BUCKETS,
    )
    cached_prompt_tokens = _Row(
        Counter, "Prompt tokens that the upstream read from its prompt cache, as it reports them.", "model"
    )
    cache_write_tokens = _Row(
        Counter, "Prompt tokens that the upstream wrote into its prompt cache, as it reports them.", "model"
    )
    cache_misses = _Row(
        Counter,
        "Requests of which the upstream reports clearly fewer cached tokens than it could have read, by cause.",
        "model cause",
    )
    cuts = _Row(Counter, "Requests forwarded with a cut, by kind.", "model kind")
    repairs = _Row(Counter, "Requests forwarded with repaired tool calls and results.", "model")
    overhead = _Row(
        Histogram,
        "Time that trimtab adds before it forwards a request, by phase.",
        "phase",
        name="overhead_seconds",
        buckets=_OVERHEAD_BUCKETS,
    )
    time_to_first_token = _Row(
        Histogram,
        "Time from a request's arrival to the first text of its stream. Reasoning and tool calls count as text.",
        "model",
        name="time_to_first_token_seconds",
        buckets=_SECONDS_BUCKETS,
    )
    upstream_seconds = _Row(
        Histogram, "Time from forwarding a request to the last byte of the answer.", "model", buckets=_SECONDS_BUCKETS
    )
    output_rate = _Row(
        Histogram,
        "Completion tokens per second of a stream, measured after its first chunk.",
        "model",
        name="output_tokens_per_second",
        buckets=_RATE_BUCKETS,
    )

    recordings = _Row(
        Counter, "Recordings of requests: written to disk, dropped because too many waited, or failed.", "result"
    )

    def __init__(self, shared: SharedMetrics | None = None) -> None:
        self.registry: CollectorRegistry = _Registry()
        self.is_shared = shared is not None
        self._page: Collector = self.registry if shared is None else AllWorkers(self.registry, shared)
        self._models: set[str] = set()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        build = Info("trimtab_build", "The versions of trimtab and Python that run.", registry=self.registry)
        build.info({"version": _read_version(), "python": platform.python_version()})
        for row in vars(Metrics).values():
            if isinstance(row, _Row):
                row.__get__(self, Metrics)  # so that collectors without a value appear on the page, too

    def label_model(self, model: str, match: str | None) -> str:
        """The label of a model: the matching glob of the configuration, else a confirmed name, else `other`."""
        if match is not None:
            return match
        return model if model in self._models else OTHER

    def vouch_for(self, model: str) -> None:
        """Allow a model's name as a label, because an upstream has answered for it with success."""
        if model.isprintable() and 0 < len(model) <= MAX_LABEL_CHARS and len(self._models) < MAX_MODEL_LABELS:
            self._models.add(model)

    def record_sections(self, model: str, stage: str, sections: Sections) -> None:
        """Count the tokens of a prompt by section; `stage` is `original` or `sent`."""
        for section, tokens in zip(Sections._fields, sections, strict=True):
            if tokens:
                self.section_tokens.labels(model, section, stage).inc(tokens)

    def record_cache(self, model: str, cached_tokens: int | None, written_tokens: int | None, miss: str) -> None:
        """Count what the upstream reports of its prompt cache; `miss` is the cause of a miss, empty for none."""
        if cached_tokens:
            self.cached_prompt_tokens.labels(model).inc(cached_tokens)
        if written_tokens:
            self.cache_write_tokens.labels(model).inc(written_tokens)
        if miss:
            self.cache_misses.labels(model, miss).inc()

    def record_decisions(self, model: str, decisions: Iterable[Decision]) -> None:
        """Count what each rule saved or added, the kind of cut, and a repair."""
        for decision in decisions:
            saved = decision.saved_tokens
            if saved >= 0:
                self.tokens_saved.labels(model, decision.rule).inc(saved)
            else:
                self.tokens_added.labels(model, decision.rule).inc(-saved)
            if decision.rule in {"prune", "summarise", "digest"}:
                self.cuts.labels(model, decision.rule).inc()
            elif decision.rule == "pairing":
                self.repairs.labels(model).inc()

    def render(self) -> bytes:
        """All metrics in Prometheus' text format; those of all workers if the values are shared."""
        return generate_latest(self._page)
