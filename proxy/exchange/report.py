"""The report of one request, and where it is written: in metrics and in the log.

Law: a report is built once, when the request is over; the request's metrics and its log line are written from it. Of a
fault only its type is written, never what it says. No label value comes from a client unless an upstream has vouched
for it. What swallows any fault is here, and nowhere else in the program.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from proxy.exchange.arrival import OTHER_ENDPOINT, Arrival
from proxy.http.errors import ProxyError
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.pace import Pace
from proxy.wire.codec import UndecodableError
from rules.conversation import Decision
from rules.pipeline.exceeded import LimitExceededError

MAX_ERROR_RATIO = 20.0
"""One absurd report must not spoil a mean."""


@dataclass(frozen=True, slots=True)
class Target:
    """The model that a request is for, and in which mode.

    `model` is as the client wrote it, `shown_model` and `upstream` are as they may be logged. `match` is the glob of
    the configuration that the model matches. `is_secret` says that the model's name is, or holds, a credential of the
    client: then it is no label. Of a request that no codec claims only the upstream is known.
    """

    upstream: str
    model: str = ""
    shown_model: str = ""
    is_secret: bool = False
    match: str | None = None
    mode: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a request: tokens as the client sent it, those that went to the upstream, and the limit.

    All are the model's own tokens. `sent_tokens` is 0 if nothing was sent.
    """

    original_tokens: int
    sent_tokens: int
    limit_tokens: int
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """What the answer tells, in the model's own tokens.

    `prompt_tokens` and `cached_tokens` are what the upstream reports. `completion_tokens` are the upstream's figure, or
    ours if `is_estimated`; None if nothing was answered. `streamed_tokens` are those of the completion that the text of
    a stream had, None if that is not known.
    """

    prompt_tokens: int | None = None
    cached_tokens: int = 0
    completion_tokens: int | None = None
    is_estimated: bool = False
    streamed_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One request that has been served, or given up. Times are of the monotonic clock.

    `prompt` is None if nothing is known of it; `prefix_kept` is the share of it that the upstream had read before.
    `is_refused`: the prompt was too long for the upstream, and that is the answer. `retry` is what became of a second
    attempt, empty if there was no reason for one. `upstream_seconds` are those from the first attempt to the end of the
    answer. `phase_seconds` are those of each phase of compaction.
    """

    arrival: Arrival
    target: Target
    status: int
    outcome: str
    seconds: float
    prompt: Prompt | None = None
    answered: Answered = field(default_factory=Answered)
    prefix_kept: float | None = None
    pace: Pace = field(default_factory=Pace)
    is_refused: bool = False
    retry: str = ""
    error: ProxyError | None = None
    upstream_seconds: float | None = None
    phase_seconds: tuple[tuple[str, float], ...] = ()


class Phases:
    """The phase that a piece of work is in, and the `seconds` of each phase that has ended, in their order."""

    def __init__(self, current: str) -> None:
        self.current = current
        self.seconds: tuple[tuple[str, float], ...] = ()

    def timed(self, name: str) -> "_Phase":
        """The block is a phase. If it raises, it stays the current one, and has no time."""
        return _Phase(self, name)

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """The same for a block whose time counts for the phase around it."""
        before, self.current = self.current, name
        yield
        self.current = before


class _Phase:
    """A block that is a phase. A class: a generator costs three times as much."""

    __slots__ = ("_before", "_name", "_phases", "_started_at")

    def __init__(self, phases: Phases, name: str) -> None:
        self._phases, self._name, self._before = phases, name, phases.current

    def __enter__(self) -> None:
        """It begins."""
        self._phases.current, self._started_at = self._name, time.monotonic()

    def __exit__(self, kind: object, *_: object) -> None:
        """It has ended, or stays the current one."""
        if kind is None:
            phases = self._phases
            phases.seconds += ((self._name, time.monotonic() - self._started_at),)
            phases.current = self._before


class Recorder:
    """Writes down what happened."""

    def __init__(self, metrics: Metrics, log: Any) -> None:
        self.metrics = metrics
        self._log = log

    def label(self, target: Target) -> str:
        """The metrics' label of a request's model."""
        return self.metrics.label_model(target.model, target.match)

    def record_fault(self, request_id: str, phase: str, error: Exception) -> None:
        """Something of ours broke, and the request goes on without it."""
        self.metrics.fail_open.labels(phase).inc()
        self._log.error("fail_open", request_id=request_id, phase=phase, error=type(error).__name__)

    def record_arrival(self, arrival: Arrival) -> None:
        """A request has come, and may be under way for long."""
        self._log.debug("request_begun", request_id=arrival.request_id, method=arrival.method, path=arrival.path)

    def record_page(self, path: str, status: int) -> None:
        """One of our own pages has been asked for."""
        self._log.debug("page", path=path, status=status)

    def record(self, report: Report) -> None:
        """The request has been served, or has been given up."""
        target, prompt = report.target, report.prompt
        is_answered = report.status == 200 and prompt is not None and not report.is_refused
        if is_answered and target.match is None and not target.is_secret:
            self.metrics.vouch_for(target.model)
        label = self.label(target)
        self.metrics.requests.labels(label, report.arrival.endpoint, str(report.status), report.outcome).inc()
        for phase, seconds in report.phase_seconds:
            self.metrics.overhead.labels(phase).observe(seconds)
        if report.retry:
            self.metrics.overflow_retries.labels(label, report.retry).inc()
        if prompt is not None:
            self._record_prompt(label, report, prompt)
        self._record_answer(label, report)
        self._write_line(report)

    def _record_prompt(self, label: str, report: Report, prompt: Prompt) -> None:
        self.metrics.prompt_tokens.labels(label, "original").inc(prompt.original_tokens)
        answered, sent = report.answered, prompt.sent_tokens
        if not sent:
            return
        self.metrics.prompt_tokens.labels(label, "sent").inc(sent)
        self.metrics.context_used.labels(label).observe(sent / max(prompt.limit_tokens, 1))
        if prompt.decisions and report.target.mode == "enforce" and not report.is_refused:
            self.metrics.record_decisions(label, prompt.decisions)
        if report.prefix_kept is not None:
            self.metrics.prefix_kept.labels(label).observe(report.prefix_kept)
        if answered.prompt_tokens:
            self.metrics.estimate_error.labels(label).observe(min(answered.prompt_tokens / sent, MAX_ERROR_RATIO))

    def _record_answer(self, label: str, report: Report) -> None:
        answered, pace = report.answered, report.pace
        if report.arrival.endpoint != OTHER_ENDPOINT and report.upstream_seconds is not None:
            self.metrics.upstream_seconds.labels(label).observe(report.upstream_seconds)
        if answered.completion_tokens is not None:
            source = "estimated" if answered.is_estimated else "upstream"
            self.metrics.completion_tokens.labels(label, source).inc(answered.completion_tokens)
        if pace.chars:
            self.metrics.time_to_first_token.labels(label).observe(pace.first_at - report.arrival.started_at)
            rate = pace.tokens_per_second(answered.streamed_tokens or 0)
            if rate is not None:
                self.metrics.output_rate.labels(label).observe(rate)

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
        known = {"upstream": target.upstream, "model": target.shown_model, "match": target.match}
        fields |= {key: value for key, value in known.items() if value}
        if report.error is not None:
            # Its words hold no message text and no credential (http/errors.py); agents often swallow them.
            fields |= {"error": report.error.code, "reason": str(report.error)}
        if prompt is not None:
            fields["original_tokens"] = prompt.original_tokens
            fields["sent_tokens"] = prompt.sent_tokens
            fields["limit_tokens"] = prompt.limit_tokens
            fields["decisions"] = [
                {"rule": item.rule, "saved_tokens": item.saved_tokens, "first_changed": item.first_changed}
                for item in prompt.decisions
            ]
        if report.prefix_kept is not None:
            fields["prefix_kept"] = round(report.prefix_kept, 3)
        if answered.completion_tokens is not None:
            fields["completion_tokens"] = answered.completion_tokens
        failed = report.outcome == "broken" or report.status >= 500
        (self._log.warning if failed else self._log.info)("request", **fields)


class fail_open:  # noqa: N801 - it is used like a function, and a generator costs three times as much
    """Whatever breaks within, the request goes on without it, and the fault is counted under the phase.

    Raises UndecodableError and LimitExceededError, which are no faults. It may be entered again and again.
    """

    __slots__ = ("_phase", "_recorder", "_request_id")

    def __init__(self, recorder: Recorder, request_id: str, phase: Phases | str) -> None:
        self._recorder = recorder
        self._request_id = request_id
        self._phase = phase

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        """Nothing that trimtab adds may cost a request."""
        if not isinstance(error, Exception) or isinstance(error, UndecodableError | LimitExceededError):
            return False
        phase = self._phase
        self._recorder.record_fault(self._request_id, phase if isinstance(phase, str) else phase.current, error)
        return True
