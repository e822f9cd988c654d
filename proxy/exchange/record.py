"""What is known of one request when it has been served: its headers to the client, its metrics, its log line."""

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from proxy.compaction.compactor import Compacted
from proxy.http.errors import ProxyError
from proxy.http.headers import Headers
from proxy.http.relay import PlainResponse, Relayed
from proxy.telemetry.metrics import Metrics

MAX_ERROR_RATIO = 20.0
"""One absurd report must not spoil a mean."""


def _make_request_id() -> str:
    return secrets.token_hex(12)


@dataclass(slots=True)
class Exchange:
    """One request as it goes along. Times are of the monotonic clock; 0.0 where there was no such moment.

    `method`, `path`, `shown_model` and `upstream` are as they may be logged (see loggable.py), `model` is as the client
    wrote it. `match` is the glob of the configuration that the model matches.
    `is_secret` says that the model's name is, or holds, a credential of the client: then it is no label.
    `stream` is the answer where that had to be begun before the upstream's (see waiting.py). `is_refused`: the prompt
    was too long for the upstream, and that is the answer. `streamed_tokens` are those of the completion that the text
    of a stream had, None if that is not known.
    """

    endpoint: str
    method: str
    path: str = ""
    request_id: str = field(default_factory=_make_request_id)
    started_at: float = field(default_factory=time.monotonic)
    sent_at: float = 0.0
    outcome: str = "aborted"
    phase: str = ""
    mode: str = ""
    model: str = ""
    shown_model: str = ""
    is_secret: bool = False
    match: str | None = None
    upstream: str = ""
    compacted: Compacted | None = None
    relayed: Relayed = field(default_factory=Relayed)
    stream: PlainResponse | None = None
    error: ProxyError | None = None
    is_refused: bool = False
    reported_prompt_tokens: int | None = None
    reported_cached_tokens: int = 0
    prefix_kept: float | None = None
    completion_tokens: int | None = None
    completion_source: str = "estimated"
    streamed_tokens: int | None = None

    def refuse(self, error: ProxyError) -> None:
        """The proxy answers with an error of its own."""
        self.outcome = "refused"
        self.error = error
        self.relayed.status = error.status

    @property
    def sent_tokens(self) -> int:
        """Prompt tokens that went to the upstream: the original's where compaction was only observed."""
        if self.compacted is None or not self.sent_at:
            return 0
        return self.compacted.sent_tokens if self.mode == "enforce" else self.compacted.original_tokens

    def response_headers(self) -> Headers:
        """What is added to the answer of a compacted path."""
        overhead_ms = ((self.sent_at or time.monotonic()) - self.started_at) * 1000
        headers = [
            ("x-trimtab-request-id", self.request_id),
            ("Server-Timing", f"trimtab;dur={overhead_ms:.1f}"),
        ]
        compacted = self.compacted
        if compacted is not None:
            tokens = f"original={compacted.original_tokens}, sent={self.sent_tokens}, limit={compacted.limit_tokens}"
            headers.append(("x-trimtab-tokens", tokens))
            decisions = ", ".join(f"{item.rule};saved={item.saved_tokens}" for item in compacted.decisions)
            if decisions:
                headers.append(("x-trimtab-decisions", decisions))
        return headers


class Recorder:
    """Writes down what happened, in metrics and in the log."""

    def __init__(self, metrics: Metrics, log: Any) -> None:
        self.metrics = metrics
        self._log = log

    def label(self, exchange: Exchange) -> str:
        """The metrics' label of the request's model."""
        return self.metrics.label_model(exchange.model, exchange.match)

    def record_overhead(self, phase: str, started: float) -> None:
        """A phase of compaction has ended."""
        self.metrics.overhead.labels(phase).observe(time.monotonic() - started)

    def record_fault(self, exchange: Exchange, error: Exception) -> None:
        """Compaction broke, and the original goes out. The type is logged, never what the error says."""
        self.metrics.fail_open.labels(exchange.phase).inc()
        self._log.error("fail_open", request_id=exchange.request_id, phase=exchange.phase, error=type(error).__name__)

    def record_arrival(self, exchange: Exchange) -> None:
        """A request has come, and may be under way for long."""
        names = {"request_id": exchange.request_id, "method": exchange.method, "path": exchange.path}
        self._log.debug("request_begun", **names)

    def record_page(self, path: str, status: int) -> None:
        """One of our own pages has been asked for."""
        self._log.debug("page", path=path, status=status)

    def record(self, exchange: Exchange) -> None:
        """The request has been served, or has been given up."""
        status = exchange.relayed.status
        if exchange.relayed.broken:
            exchange.outcome = "broken"
        elif status == 0 or exchange.relayed.client_left:
            exchange.outcome = "aborted"
        is_answered = status == 200 and exchange.compacted is not None and not exchange.is_refused
        if is_answered and exchange.match is None and not exchange.is_secret:
            self.metrics.vouch_for(exchange.model)
        label = self.label(exchange)
        self.metrics.requests.labels(label, exchange.endpoint, str(status), exchange.outcome).inc()
        if exchange.compacted is not None:
            self._record_prompt(label, exchange, exchange.compacted)
        self._record_answer(label, exchange)
        self._log_line(exchange)

    def _record_prompt(self, label: str, exchange: Exchange, compacted: Compacted) -> None:
        self.metrics.prompt_tokens.labels(label, "original").inc(compacted.original_tokens)
        sent = exchange.sent_tokens
        if not sent:
            return
        self.metrics.prompt_tokens.labels(label, "sent").inc(sent)
        self.metrics.context_used.labels(label).observe(sent / max(compacted.limit_tokens, 1))
        if exchange.mode == "enforce" and not exchange.is_refused:
            self.metrics.record_decisions(label, compacted.decisions)
        if exchange.prefix_kept is not None:
            self.metrics.prefix_kept.labels(label).observe(exchange.prefix_kept)
        if exchange.reported_prompt_tokens:
            error_ratio = min(exchange.reported_prompt_tokens / sent, MAX_ERROR_RATIO)
            self.metrics.estimate_error.labels(label).observe(error_ratio)

    def _record_answer(self, label: str, exchange: Exchange) -> None:
        relayed, pace = exchange.relayed, exchange.relayed.pace
        if exchange.endpoint == "chat" and relayed.last_byte_at:
            self.metrics.upstream_seconds.labels(label).observe(relayed.last_byte_at - exchange.sent_at)
        if pace.chars:
            self.metrics.time_to_first_token.labels(label).observe(pace.first_at - exchange.started_at)
        if exchange.completion_tokens is not None:
            self.metrics.completion_tokens.labels(label, exchange.completion_source).inc(exchange.completion_tokens)
        rate = pace.tokens_per_second(exchange.streamed_tokens or 0)
        if rate is not None:
            self.metrics.output_rate.labels(label).observe(rate)

    def _log_line(self, exchange: Exchange) -> None:
        status = exchange.relayed.status
        fields: dict[str, Any] = {
            "request_id": exchange.request_id,
            "endpoint": exchange.endpoint,
            "method": exchange.method,
            "path": exchange.path,
            "status": status,
            "outcome": exchange.outcome,
            "seconds": round(time.monotonic() - exchange.started_at, 4),
        }
        known = {"upstream": exchange.upstream, "model": exchange.shown_model, "match": exchange.match}
        fields |= {key: value for key, value in known.items() if value}
        if exchange.error is not None:
            # Its words hold no message text and no credential (http/errors.py); agents often swallow them.
            fields |= {"error": exchange.error.code, "reason": str(exchange.error)}
        compacted = exchange.compacted
        if compacted is not None:
            fields["original_tokens"] = compacted.original_tokens
            fields["sent_tokens"] = exchange.sent_tokens
            fields["limit_tokens"] = compacted.limit_tokens
            fields["decisions"] = [
                {"rule": item.rule, "saved_tokens": item.saved_tokens, "first_changed": item.first_changed}
                for item in compacted.decisions
            ]
        if exchange.prefix_kept is not None:
            fields["prefix_kept"] = round(exchange.prefix_kept, 3)
        if exchange.completion_tokens is not None:
            fields["completion_tokens"] = exchange.completion_tokens
        failed = exchange.outcome == "broken" or status >= 500
        (self._log.warning if failed else self._log.info)("request", **fields)
