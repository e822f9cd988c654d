"""Every Prometheus collector.

Law: names and labels are a contract with users. A client's value becomes a label only after an upstream has answered
for it with success.
"""

import platform
import time
from collections.abc import Callable, Iterable, Iterator

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
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.registry import Collector

from proxy.telemetry.pages import MetricsPages
from proxy.telemetry.rows import Registry, Row, read_version
from proxy.telemetry.shared import AllWorkers, SharedMetrics
from rules.conversation import Decision
from rules.tokens.sections import Sections

MAX_MODEL_LABELS = 50  # chosen: bounds the number of series
MAX_LABEL_CHARS = 128  # chosen: longer than real model names
OTHER = "other"
LAST_RELOAD_SUCCESSFUL = "config_last_reload_successful"
LAST_RELOAD_SUCCESS_TIMESTAMP = "config_last_reload_success_timestamp_seconds"
"""Source of both: the names that Prometheus and Alertmanager use for their own."""
_OF_RELOADS = (f"trimtab_{LAST_RELOAD_SUCCESSFUL}", f"trimtab_{LAST_RELOAD_SUCCESS_TIMESTAMP}")

_OVERHEAD_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1, 5, 30)
_SECONDS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_RATE_BUCKETS = (1, 5, 10, 20, 40, 80, 160, 320, 640)
_RATIO_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.5)
_ERROR_BUCKETS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 4, 8)
_PREFIX_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)


class Metrics:
    """The collectors of one proxy, in their own registry. Each row: kind, help, labels, and a name if it differs.

    shared: the values of several workers, of which this process is one; None for a single process.
    """

    requests = Row(Counter, "Requests that have ended, by outcome.", "model endpoint status outcome")
    client_requests = Row(Counter, "Requests that have ended, by client and outcome.", "client outcome")
    client_tokens = Row(
        Counter,
        "Tokens by client: prompts as it sent them (original) and as forwarded (sent), and completions (completion).",
        "client stage",
    )
    in_flight = Row(Gauge, "Requests in flight.", name="requests_in_flight", multiprocess_mode="livesum")
    config_is_current = Row(
        Gauge,
        "Whether the configuration was valid when it was last read: 1 or 0. After 0, the one before stays in force.",
        name=LAST_RELOAD_SUCCESSFUL,
    )
    config_read_at = Row(
        Gauge,
        "Time of the last successful reading of the configuration, in seconds since 1970.",
        name=LAST_RELOAD_SUCCESS_TIMESTAMP,
    )
    prompt_tokens = Row(
        Counter, "Prompt tokens: as the client sent them (original) and as forwarded (sent).", "model stage"
    )
    section_tokens = Row(
        Counter,
        "Prompt tokens by section: as the client sent them (original) and as forwarded (sent).",
        "model section stage",
    )
    tokens_saved = Row(
        Counter, "Prompt tokens saved by each rule. The cost of summaries is not subtracted.", "model rule"
    )
    tokens_added = Row(Counter, "Prompt tokens added by each rule.", "model rule")
    completion_tokens = Row(Counter, "Completion tokens, as reported by the upstream or estimated.", "model source")
    context_used = Row(
        Histogram,
        "Ratio of the forwarded prompt tokens to the limit.",
        "model",
        name="context_used_ratio",
        buckets=_RATIO_BUCKETS,
    )
    estimate_error = Row(
        Histogram,
        "Ratio of the prompt tokens reported by the upstream to trimtab's estimate.",
        "model",
        name="estimate_error_ratio",
        buckets=_ERROR_BUCKETS,
    )
    policy_changes = Row(
        Counter, "Changes of a model's learned window or token ratio. Each may move a cut once.", "model cause"
    )
    overflow_retries = Row(
        Counter, "Prompts that the upstream refused as too long, by the result of the second attempt.", "model result"
    )
    silent_truncations = Row(
        Counter,
        "Answers that report far fewer prompt tokens than were sent: the upstream truncates prompts silently.",
        "model",
    )
    fail_open = Row(Counter, "Faults inside trimtab. The request went on without the part that failed.", "phase")
    summaries = Row(Counter, "Summaries that cuts needed, by how each was obtained.", "model result")
    sessions_without_summaries = Row(
        Counter, "Sessions that got a digest although a model's summary was wanted, by the reason.", "model reason"
    )
    summary_tokens = Row(
        Counter, "Tokens of calls for summaries, as reported by the upstream, else as counted.", "model kind"
    )
    cost_usd = Row(
        Counter,
        "What answered requests have cost in US dollars, by part of the bill, where prices are known.",
        "model part",
    )
    cost_without_usd = Row(
        Counter, "What the same requests would have cost in US dollars if they had passed unchanged.", "model"
    )
    summary_seconds = Row(
        Histogram,
        "Duration of calls for summaries in seconds, by their result.",
        "model result",
        buckets=_SECONDS_BUCKETS,
    )
    store_errors = Row(Counter, "Operations of the store that failed.", "store")
    prefix_kept = Row(
        Histogram,
        "Ratio of forwarded prompt tokens that equal the previous request of the session, byte for byte, to all.",
        "model",
        name="prefix_kept_ratio",
        buckets=_PREFIX_BUCKETS,
    )
    cached_prompt_tokens = Row(
        Counter, "Prompt tokens that the upstream read from its prompt cache, as it reports them.", "model"
    )
    cache_reported_tokens = Row(
        Counter,
        "Prompt tokens, as the upstream reports them, of answers that say how many it read from its prompt cache.",
        "model",
    )
    cache_write_tokens = Row(
        Counter, "Prompt tokens that the upstream wrote into its prompt cache, as it reports them.", "model"
    )
    cache_misses = Row(
        Counter,
        "Requests of which the upstream reports clearly fewer cached tokens than it could have read, by cause.",
        "model cause",
    )
    cuts = Row(Counter, "Requests forwarded with a cut, by kind.", "model kind")
    repairs = Row(Counter, "Requests forwarded with repaired tool calls and results.", "model")
    overhead = Row(
        Histogram,
        "Time in seconds that trimtab adds before it forwards a request, by phase.",
        "phase",
        name="overhead_seconds",
        buckets=_OVERHEAD_BUCKETS,
    )
    time_to_first_token = Row(
        Histogram,
        "Seconds from a request's arrival to the first text of its stream. Reasoning and tool calls count as text.",
        "model",
        name="time_to_first_token_seconds",
        buckets=_SECONDS_BUCKETS,
    )
    upstream_seconds = Row(
        Histogram,
        "Seconds from forwarding a request to the last byte of the answer.",
        "model",
        buckets=_SECONDS_BUCKETS,
    )
    output_rate = Row(
        Histogram,
        "Completion tokens per second of a stream, measured after its first chunk.",
        "model",
        name="output_tokens_per_second",
        buckets=_RATE_BUCKETS,
    )

    recordings = Row(
        Counter, "Recordings of requests: written to disk, dropped because too many waited, or failed.", "result"
    )

    def __init__(self, shared: SharedMetrics | None = None) -> None:
        self.registry: CollectorRegistry = Registry()
        self.is_shared = shared is not None
        self.started_at = time.time() if shared is None else shared.started_at
        self.pages = MetricsPages(self.render)
        self._page: Collector = self.registry if shared is None else AllWorkers(self.registry, shared, _OF_RELOADS)
        self._models: set[str] = set()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        build = Info("trimtab_build", "The versions of trimtab and Python that run.", registry=self.registry)
        build.info({"version": read_version(), "python": platform.python_version()})
        for row in vars(Metrics).values():
            if isinstance(row, Row):
                row.__get__(self, Metrics)  # so that collectors without a value appear on the page, too
        self._reloads = None if shared is None else shared.reloads
        if shared is None:
            self.note_reload(at=time.time())

    def note_reload(self, *, at: float | None) -> None:
        """Note that the configuration was read at this time, in seconds since 1970; None if it could not be.

        Several workers share these two values: one that starts later changes nothing.
        """
        if self._reloads is not None:
            self._reloads.write(at)
            return
        self.config_is_current.set(at is not None)
        if at is not None:
            self.config_read_at.set(at)

    def label_model(self, model: str, match: str | None) -> str:
        """The label of a model: the matching glob of the configuration, else a confirmed name, else `other`."""
        if match is not None:
            return match
        return model if model in self._models else OTHER

    def vouch_for(self, model: str) -> None:
        """Allow a model's name as a label, because an upstream has answered for it with success."""
        if model.isprintable() and 0 < len(model) <= MAX_LABEL_CHARS and len(self._models) < MAX_MODEL_LABELS:
            self._models.add(model)

    def record_sections(self, model: str, stage: str, sections: tuple[int, ...]) -> None:
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

    def collect(self) -> Iterator[Metric]:
        """All metrics; those of all workers if the values are shared, which takes some milliseconds."""
        yield from self._page.collect()

    def render(self, *, as_open_metrics: bool = False) -> bytes:
        """All metrics in Prometheus' text format, or as OpenMetrics; those of all workers if the values are shared."""
        write: Callable[[Collector], bytes] = generate_open_metrics if as_open_metrics else generate_latest
        return write(self._page)
