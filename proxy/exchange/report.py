"""The report of one request, and its metrics and log line.

Law: a report is built once, when the request is over. The request's metrics and its log line come from it. A fault is
recorded by its type only, never by its text. A client's value becomes a label only if an upstream has answered for it.
The program's one broad `except` is here, in `fail_open`.
"""

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from proxy.account.statistics.till import Till
from proxy.exchange.arrival import Arrival
from proxy.exchange.phases import Phases
from proxy.http.errors import ContextExceededError, ProxyError
from proxy.state.catalogue.costs import Bill
from proxy.telemetry.ledger import Prompt
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.pace import Pace
from proxy.wire.codec import UndecodableError
from rules.conversation import Decision
from rules.pipeline.exceeded import LimitExceededError

MAX_ERROR_RATIO = 20.0
"""Larger ratios are recorded as this one. Chosen: one absurd report must not spoil the mean."""
MAX_TOLD_PATHS = 64
"""Paths of which the log says that they are not compacted. Chosen: more than real clients use; bounds the memory."""


@dataclass(frozen=True, slots=True)
class Target:
    """The model and upstream that a request is for, and its mode.

    model: as the client wrote it.
    shown_model, upstream: in the form that may be logged.
    is_secret: the model's name contains a credential of the client, so it must not become a label.
    match: the glob of `models` in the configuration that the model matches; None for none.

    Of a request that no codec claims, the model is known only if it decided the upstream.
    """

    upstream: str
    model: str = ""
    shown_model: str = ""
    is_secret: bool = False
    match: str | None = None
    mode: str = ""

    @property
    def vouched(self) -> str:
        """The model's name if it may become a label once the upstream has answered for it, else empty."""
        return self.model if self.match is None and not self.is_secret else ""


@dataclass(frozen=True, slots=True)
class Answered:
    """The figures of the answer, in the model's own tokens.

    prompt_tokens, cached_tokens, written_tokens: the upstream's figures; None if it does not report them. The last two
        are parts of the first: what was read from the prompt cache, and what was written into it.
    completion_tokens: the upstream's figure, or ours if `is_estimated`; None if there was no answer.
    streamed_tokens: tokens of the text that was streamed; None if not known.
    ends_turn: the answer calls no tool, so the user has the turn.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    is_estimated: bool = False
    streamed_tokens: int | None = None
    written_tokens: int | None = None
    ends_turn: bool = False

    @property
    def fresh_tokens(self) -> int | None:
        """The prompt tokens that were neither read from the cache nor written into it; None if it is not known."""
        if self.prompt_tokens is None or (self.cached_tokens is None and self.written_tokens is None):
            return None
        return self.prompt_tokens - (self.cached_tokens or 0) - (self.written_tokens or 0)


@dataclass(frozen=True, slots=True)
class Report:
    """One request that was served or given up.

    status: the HTTP status that the client got; 0 if it left before.
    seconds: from the arrival of the head to the end of the answer.
    prompt: None if it was not counted.
    prefix_kept: share of the prompt that equals the previous request's prefix; None if not known.
    cache_miss: why the upstream read less from its prompt cache than it could have; empty if it did not.
    idle_seconds: how long the session was silent before this request; None if not known.
    is_refused: the client got the upstream's refusal of a prompt that is too long.
    is_client_compaction: the client asked for a summary of its own, and its request passed unchanged.
    retry: what became of a second attempt; empty if there was no reason for one.
    upstream_seconds: from the first attempt to the end of the answer; None if there was no answer.
    phase_seconds: name and duration of each phase of compaction, in order.
    bill: what it has cost; None if that is not known.
    """

    arrival: Arrival
    target: Target
    status: int
    outcome: str
    seconds: float
    prompt: Prompt | None = None
    answered: Answered = field(default_factory=Answered)
    prefix_kept: float | None = None
    cache_miss: str = ""
    idle_seconds: float | None = None
    pace: Pace = field(default_factory=Pace)
    is_refused: bool = False
    is_client_compaction: bool = False
    retry: str = ""
    error: ProxyError | None = None
    upstream_seconds: float | None = None
    phase_seconds: tuple[tuple[str, float], ...] = ()
    bill: Bill | None = None

    @property
    def counted_decisions(self) -> tuple[Decision, ...]:
        """The decisions whose savings are counted in the metrics: those that were carried out, and not refused."""
        prompt = self.prompt
        if prompt is None or not prompt.sent_tokens or self.target.mode != "enforce" or self.is_refused:
            return ()
        return prompt.decisions


class Recorder:
    """Writes metrics and log lines."""

    def __init__(self, metrics: Metrics, log: Any, till: Till | None = None) -> None:
        self.metrics = metrics
        self.till = till or Till(metrics)
        self._log = log
        self._told_paths: set[str] = set()

    def label(self, target: Target) -> str:
        """The metrics' label of a request's model."""
        return self.metrics.label_model(target.model, target.match)

    def record_fault(self, request_id: str, phase: str, error: Exception) -> None:
        """Count and log a fault of ours. The request goes on without the part that failed."""
        self.metrics.fail_open.labels(phase).inc()
        self._log.error("fail_open", request_id=request_id, phase=phase, error=type(error).__name__)

    def record_arrival(self, arrival: Arrival) -> None:
        """Log that a request has arrived, because its own log line may come much later."""
        self._log.debug("request_begun", request_id=arrival.request_id, method=arrival.method, path=arrival.path)

    def record_unlisted(self, upstream: str, reason: str) -> None:
        """Log that the merged list of models lacks those of an upstream."""
        self._log.warning("models_unlisted", upstream=upstream, reason=reason)

    def record_page(self, path: str, status: int) -> None:
        """Log a request for one of our own pages."""
        self._log.debug("page", path=path, status=status)

    def record(self, report: Report) -> None:
        """Record a request that was served or given up."""
        target, prompt = report.target, report.prompt
        if report.status == 200 and prompt is not None and not report.is_refused:
            self.metrics.vouch_for(target.vouched)
        label = self.label(target)
        self.metrics.requests.labels(label, report.arrival.endpoint, str(report.status), report.outcome).inc()
        if report.arrival.tenant.client_name:
            self._record_client(report.arrival.tenant.client_name, report)
        for phase, seconds in report.phase_seconds:
            self.metrics.overhead.labels(phase).observe(seconds)
        if report.retry:
            self.metrics.overflow_retries.labels(label, report.retry).inc()
        if prompt is not None:
            self._record_prompt(label, report, prompt)
        self._record_answer(label, report)
        if report.bill is not None:
            self.till.charge(label, report.arrival.tenant.client_name, report.bill)
        self._write_line(report)
        if report.error is None and report.arrival.passed is not None and report.arrival.passed.has_prompt:
            self._tell_not_compacted(report.arrival)

    def _record_client(self, client: str, report: Report) -> None:
        self.metrics.client_requests.labels(client, report.outcome).inc()
        tokens = {"completion": report.answered.completion_tokens}
        if report.prompt is not None:
            tokens |= {"original": report.prompt.original_tokens, "sent": report.prompt.sent_tokens}
        for stage, number in tokens.items():
            if number:
                self.metrics.client_tokens.labels(client, stage).inc(number)

    def _record_prompt(self, label: str, report: Report, prompt: Prompt) -> None:
        self.metrics.prompt_tokens.labels(label, "original").inc(prompt.original_tokens)
        self.metrics.record_sections(label, "original", prompt.original_sections)
        answered, sent = report.answered, prompt.sent_tokens
        if not sent:
            return
        self.metrics.prompt_tokens.labels(label, "sent").inc(sent)
        self.metrics.record_sections(label, "sent", prompt.sent_sections)
        self.metrics.context_used.labels(label).observe(sent / max(prompt.limit_tokens, 1))
        self.metrics.record_decisions(label, report.counted_decisions)
        if report.prefix_kept is not None:
            self.metrics.prefix_kept.labels(label).observe(report.prefix_kept)
        if answered.prompt_tokens:
            self.metrics.estimate_error.labels(label).observe(min(answered.prompt_tokens / sent, MAX_ERROR_RATIO))

    def _record_answer(self, label: str, report: Report) -> None:
        answered, pace = report.answered, report.pace
        if report.arrival.passed is None and report.upstream_seconds is not None:
            self.metrics.upstream_seconds.labels(label).observe(report.upstream_seconds)
        if answered.completion_tokens is not None:
            source = "estimated" if answered.is_estimated else "upstream"
            self.metrics.completion_tokens.labels(label, source).inc(answered.completion_tokens)
        if answered.cached_tokens is not None and answered.prompt_tokens:
            self.metrics.cache_reported_tokens.labels(label).inc(answered.prompt_tokens)
        self.metrics.record_cache(label, answered.cached_tokens, answered.written_tokens, report.cache_miss)
        if pace.chars:
            self.metrics.time_to_first_token.labels(label).observe(pace.first_at - report.arrival.started_at)
            rate = pace.tokens_per_second(answered.streamed_tokens or 0)
            if rate is not None:
                self.metrics.output_rate.labels(label).observe(rate)

    def _tell_not_compacted(self, arrival: Arrival) -> None:
        """Warn, once for each path, that prompts pass there whatever their length."""
        if arrival.path not in self._told_paths and len(self._told_paths) < MAX_TOLD_PATHS:
            self._told_paths.add(arrival.path)
            meaning = "trimtab does not compact requests at this path, so a prompt may become too long for its model"
            self._log.warning("not_compacted", path=arrival.path, endpoint=arrival.endpoint, meaning=meaning)

    def _write_line(self, report: Report) -> None:
        arrival, target, prompt, answered = report.arrival, report.target, report.prompt, report.answered
        fields: dict[str, Any] = {
            "request_id": arrival.request_id,
            "endpoint": arrival.endpoint,
            "method": arrival.method,
            "path": arrival.path,
            "status": report.status,
            "outcome": report.outcome,
            "seconds": round(report.seconds, 4),
        }
        known = {
            "client": arrival.tenant.client_name,
            "upstream": target.upstream,
            "model": target.shown_model,
            "match": target.match,
            "mode": "" if target.mode == "enforce" else target.mode,
            "retry": report.retry,
            "compaction": "client" if report.is_client_compaction else "",
            "cache_miss": report.cache_miss,
            "is_estimated": answered.is_estimated,
        }
        fields |= {key: value for key, value in known.items() if value}
        if report.error is not None:
            # Our errors hold no message text and no credential (http/errors.py). They are logged, because agents often
            # hide them from their users.
            fields |= {"error": report.error.code, "reason": str(report.error)}
            if isinstance(report.error, ContextExceededError) and report.error.context_cost is not None:
                fields["context_cost"] = report.error.context_cost
        if prompt is not None:
            fields |= prompt.describe()
        if report.prefix_kept is not None:
            fields["prefix_kept"] = round(report.prefix_kept, 3)
        read = {"cached_tokens": answered.cached_tokens, "written_tokens": answered.written_tokens}
        told = {**read, "fresh_tokens": answered.fresh_tokens, "idle_seconds": report.idle_seconds}
        fields |= {name: number for name, number in told.items() if number is not None}
        if answered.completion_tokens is not None:
            fields["completion_tokens"] = answered.completion_tokens
        failed = report.outcome == "broken" or report.status >= 500
        (self._log.warning if failed else self._log.info)("request", **fields)


class fail_open:  # noqa: N801 - it is used like a function, and a generator costs three times as much
    """Context manager: swallow any fault inside the block, and count it under the phase. The request goes on.

    Lets UndecodableError and LimitExceededError pass, because they are not faults. It may be entered several times.
    """

    __slots__ = ("_phase", "_recorder", "_request_id")

    def __init__(self, recorder: Recorder, request_id: str, phase: Phases | str) -> None:
        self._recorder = recorder
        self._request_id = request_id
        self._phase = phase

    def __enter__(self) -> None:
        """Do nothing: there is nothing to prepare."""

    def __exit__(self, _: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        """Record and swallow a fault: no fault of ours may cost a client its answer."""
        if not isinstance(error, Exception) or isinstance(error, UndecodableError | LimitExceededError):
            return False
        phase = self._phase
        self._recorder.record_fault(self._request_id, phase if isinstance(phase, str) else phase.current, error)
        return True
