"""Every Prometheus collector.

Law: names and labels are a contract with users. A client's value becomes a label only after an upstream has answered
for it with success.
"""

import asyncio
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, GCCollector, Info, Metric, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.registry import Collector

from trimtab.proxy.telemetry.families import Counter, Gauge, Histogram
from trimtab.proxy.telemetry.shared import AllWorkers, Reloads, SharedMetrics
from trimtab.rules.conversation import Decision
from trimtab.rules.tokens.sections import Sections

MAX_MODEL_LABELS = 50  # chosen: bounds the number of series
MAX_LABEL_CHARS = 128  # chosen: longer than real model names
OTHER = "other"
LAST_RELOAD_SUCCESSFUL = "config_last_reload_successful"
LAST_RELOAD_SUCCESS_TIMESTAMP = "config_last_reload_success_timestamp_seconds"
"""Source of both: the names that Prometheus and Alertmanager use for their own."""

RENDER_SECONDS = 1.0  # Between renderings. Chosen: one takes up to a tenth; scrapers come every 15 s.

_OVERHEAD_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1, 5, 30)
_SECONDS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_RATE_BUCKETS = (1, 5, 10, 20, 40, 80, 160, 320, 640)
_RATIO_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.5)
_ERROR_BUCKETS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 4, 8)
_PREFIX_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)


@cache
def read_version() -> str:
    try:
        return version("trimtab")
    except PackageNotFoundError:  # run from its sources, not installed
        return "unknown"


class Metrics(Collector):
    """The collectors of one proxy. Each row: help, labels, and a name if it differs. shared: of several workers."""

    requests = Counter("Requests that have ended, by outcome.", "model endpoint status outcome")
    answered = Counter(
        "Requests whose prompts count: the upstream has answered them, if only in part, or may charge for them.",
        "model outcome",
        name="answered_requests",
    )
    client_requests = Counter("Requests that have ended, by client and outcome.", "client outcome")
    client_tokens = Counter(
        "Tokens by client: prompts as it sent them (original) and as forwarded (sent), and completions (completion).",
        "client stage",
    )
    in_flight = Gauge("Requests in flight.", name="requests_in_flight", is_shared=True)
    config_is_current = Gauge(
        "Whether the configuration was valid when it was last read: 1 or 0. After 0, the one before stays in force.",
        name=LAST_RELOAD_SUCCESSFUL,
    )
    config_read_at = Gauge(
        "Time of the last successful reading of the configuration, in seconds since 1970.",
        name=LAST_RELOAD_SUCCESS_TIMESTAMP,
    )
    prompt_tokens = Counter("Prompt tokens: as the client sent them (original) and as forwarded (sent).", "model stage")
    section_tokens = Counter(
        "Prompt tokens by section: as the client sent them (original) and as forwarded (sent).", "model section stage"
    )
    tokens_saved = Counter("Prompt tokens saved by each rule. The cost of summaries is not subtracted.", "model rule")
    tokens_added = Counter("Prompt tokens added by each rule.", "model rule")
    completion_tokens = Counter("Completion tokens, as reported by the upstream or estimated.", "model source")
    context_used = Histogram(
        "Ratio of the forwarded prompt tokens to the limit.", "model", name="context_used_ratio", buckets=_RATIO_BUCKETS
    )
    estimate_error = Histogram(
        "Ratio of the prompt tokens reported by the upstream to trimtab's estimate.",
        "model",
        name="estimate_error_ratio",
        buckets=_ERROR_BUCKETS,
    )
    policy_changes = Counter(
        "Changes of a model's learned window or token ratio. Each may move a cut once.", "model cause"
    )
    overflow_retries = Counter(
        "Prompts that the upstream refused as too long, by the result of the second attempt.", "model result"
    )
    silent_truncations = Counter(
        "Answers that report far fewer prompt tokens than were sent: the upstream truncates prompts silently.", "model"
    )
    fail_open = Counter("Faults inside trimtab. The request went on without the part that failed.", "phase")
    summaries = Counter("Summaries that cuts needed, by how each was obtained.", "model result")
    sessions_without_summaries = Counter(
        "Sessions that got a digest although a model's summary was wanted, by the reason.", "model reason"
    )
    summary_tokens = Counter(
        "Tokens of calls for summaries, as reported by the upstream, else as counted.", "model kind"
    )
    cost_usd = Counter(
        "What answered requests have cost in US dollars, by part of the bill, where prices are known.", "model part"
    )
    cost_without_usd = Counter(
        "What the same requests would have cost in US dollars if they had passed unchanged.", "model"
    )
    summary_seconds = Histogram(
        "Duration of calls for summaries in seconds, by their result.", "model result", buckets=_SECONDS_BUCKETS
    )
    store_errors = Counter("Operations of the store that failed.", "store")
    prefix_kept = Histogram(
        "Ratio of forwarded prompt tokens that equal the previous request of the session, byte for byte, to all.",
        "model",
        name="prefix_kept_ratio",
        buckets=_PREFIX_BUCKETS,
    )
    cached_prompt_tokens = Counter(
        "Prompt tokens that the upstream read from its prompt cache, as it reports them.", "model"
    )
    cache_reported_tokens = Counter(
        "Prompt tokens, as the upstream reports them, of answers that say how many it read from its prompt cache.",
        "model",
    )
    cache_write_tokens = Counter(
        "Prompt tokens that the upstream wrote into its prompt cache, as it reports them.", "model"
    )
    cache_misses = Counter(
        "Requests of which the upstream reports clearly fewer cached tokens than it could have read, by cause.",
        "model cause",
    )
    cuts = Counter("Requests forwarded with a cut, by kind.", "model kind")
    repairs = Counter("Requests forwarded with repaired tool calls and results.", "model")
    overhead = Histogram(
        "Time in seconds that trimtab adds before it forwards a request, by phase.",
        "phase",
        name="overhead_seconds",
        buckets=_OVERHEAD_BUCKETS,
    )
    time_to_first_token = Histogram(
        "Seconds from a request's arrival to the first text of its stream. Reasoning and tool calls count as text.",
        "model",
        name="time_to_first_token_seconds",
        buckets=_SECONDS_BUCKETS,
    )
    upstream_seconds = Histogram(
        "Seconds from forwarding a request to the last byte of the answer.", "model", buckets=_SECONDS_BUCKETS
    )
    output_rate = Histogram(
        "Completion tokens per second of a stream, measured after its first chunk.",
        "model",
        name="output_tokens_per_second",
        buckets=_RATE_BUCKETS,
    )

    recordings = Counter(
        "Recordings of requests: written to disk, dropped because too many waited, or failed.", "result"
    )

    def __init__(self, shared: SharedMetrics | None = None, worker: int = 0) -> None:
        self.is_shared = shared is not None
        self.started_at = time.time() if shared is None else shared.started_at
        self.pages = MetricsPages(self.render)
        self._models: set[str] = set()
        self._reloads = Reloads(self.started_at) if shared is None else shared.reloads
        rows = {name: row for name, row in vars(Metrics).items() if isinstance(row, Counter | Histogram)}
        numbers = None if shared is None else shared.open_numbers(worker)
        self._families = {name: row.begin(numbers) for name, row in rows.items()}
        vars(self).update(self._families)
        self.show_in_flight = partial(self.in_flight.__setitem__, ())
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        build = Info("trimtab_build", "The versions of trimtab and Python that run.", registry=self.registry)
        build.info({"version": read_version(), "python": platform.python_version()})
        self.registry.register(self)
        self._page: Collector = self.registry
        if shared is not None:
            self._page = AllWorkers(self.registry, shared, tuple(rows.values()))

    def note_reload(self, *, at: float | None) -> None:
        """Note a reading of the configuration, in seconds since 1970; None if it failed. Workers share it."""
        self._reloads.write(at)

    def label_model(self, model: str, match: str | None) -> str:
        """The label of a model: the matching glob of the configuration, else a confirmed name, else `other`."""
        if match is not None:
            return match
        return model if model in self._models else OTHER

    def vouch_for(self, model: str) -> str:
        """Allow a model's name as a label, because an upstream has answered for it with success; returns its label."""
        if model.isprintable() and 0 < len(model) <= MAX_LABEL_CHARS and len(self._models) < MAX_MODEL_LABELS:
            self._models.add(model)
        return self.label_model(model, None)

    def record_sections(self, model: str, stage: str, sections: tuple[int, ...]) -> None:
        for section, tokens in zip(Sections._fields, sections, strict=True):
            if tokens:
                self.section_tokens[model, section, stage] += tokens

    def record_cache(self, model: str, cached_tokens: int | None, written_tokens: int | None, miss: str) -> None:
        """Count what the upstream reports of its prompt cache; `miss` is the cause of a miss, empty for none."""
        if cached_tokens:
            self.cached_prompt_tokens[model] += cached_tokens
        if written_tokens:
            self.cache_write_tokens[model] += written_tokens
        if miss:
            self.cache_misses[model, miss] += 1

    def record_decisions(self, model: str, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            saved = decision.saved_tokens
            if saved >= 0:
                self.tokens_saved[model, decision.rule] += saved
            else:
                self.tokens_added[model, decision.rule] += -saved
            if decision.rule in {"prune", "summarise", "digest"}:
                self.cuts[model, decision.rule] += 1
            elif decision.rule == "pairing":
                self.repairs[model] += 1

    def collect(self) -> Iterator[Metric]:
        self.config_is_current[()], self.config_read_at[()] = self._reloads.read()
        return (family.read() for family in self._families.values())

    def collect_all(self) -> Iterable[Metric]:
        """All metrics; those of all workers if the values are shared, which takes some milliseconds."""
        return self._page.collect()

    def render(self, *, as_open_metrics: bool = False) -> bytes:
        """All metrics in Prometheus' text format, or as OpenMetrics; those of all workers if the values are shared."""
        write: Callable[[Collector], bytes] = generate_open_metrics if as_open_metrics else generate_latest
        return write(self._page)


class MetricsPages:
    """The newest page, for all of its readers, never older than the request for it. render: makes one, in a thread."""

    def __init__(self, render: Callable[..., bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._render = render
        self._clock = clock
        self._turn = asyncio.Lock()
        self._began_at = float("-inf")
        self._bodies: dict[bool, bytes] = {}

    async def read(self, *, as_open_metrics: bool = False) -> bytes:
        """A page that was rendered after this call. Readers that come within a second get the same one."""
        asked_at = self._clock()
        async with self._turn:
            if self._began_at < asked_at:
                await asyncio.sleep(self._began_at + RENDER_SECONDS - self._clock())
                self._began_at, self._bodies = self._clock(), {}
            if as_open_metrics not in self._bodies:
                self._bodies[as_open_metrics] = await asyncio.to_thread(self._render, as_open_metrics=as_open_metrics)
            return self._bodies[as_open_metrics]
