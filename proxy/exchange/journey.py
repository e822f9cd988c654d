"""How far one request has come, and the report of it in the end.

Law: each field is what one stage has returned. Only serve.py and the router write to it.
"""

import time
from dataclasses import dataclass, field

from proxy.exchange.arrival import Arrival
from proxy.exchange.compact import Attempt
from proxy.exchange.early_answer import Opening
from proxy.exchange.record import Answered, Prompt, Report, Target
from proxy.http.errors import ProxyError
from proxy.http.headers import Headers
from proxy.http.relay import Reply


@dataclass(slots=True)
class Journey:
    """One request under way.

    `attempts` is how many times it was sent, or was about to be; `sent_at` is when it was first, of the monotonic
    clock, 0.0 before that. `opening` is that of the last attempt's answer, None before that.
    """

    arrival: Arrival
    reply: Reply
    target: Target = field(default_factory=lambda: Target(""))
    attempt: Attempt = field(default_factory=lambda: Attempt("aborted"))
    attempts: int = 0
    sent_at: float = 0.0
    opening: Opening | None = None
    answered: Answered = field(default_factory=Answered)
    error: ProxyError | None = None

    def begin_attempt(self) -> None:
        """The request is sent, or sent again."""
        self.attempts += 1
        self.sent_at = self.sent_at or time.monotonic()
        self.opening = None

    def write_headers(self) -> Headers:
        """What is added to the answer of a request that a codec claims."""
        prompt, request_id = _describe_prompt(self), self.arrival.request_id
        overhead_ms = ((self.sent_at or time.monotonic()) - self.arrival.started_at) * 1000
        headers = [("x-trimtab-request-id", request_id), ("Server-Timing", f"trimtab;dur={overhead_ms:.1f}")]
        if prompt is not None:
            tokens = f"original={prompt.original_tokens}, sent={prompt.sent_tokens}, limit={prompt.limit_tokens}"
            headers.append(("x-trimtab-tokens", tokens))
            decisions = ", ".join(f"{item.rule};saved={item.saved_tokens}" for item in prompt.decisions)
            if decisions:
                headers.append(("x-trimtab-decisions", decisions))
        return headers

    def report(self) -> Report:
        """What came of it."""
        reply, opening, error = self.reply, self.opening, self.error
        status = reply.status if error is None else error.status
        return Report(
            arrival=self.arrival,
            target=self.target,
            status=status,
            outcome=_name_outcome(self, status),
            seconds=time.monotonic() - self.arrival.started_at,
            prompt=_describe_prompt(self),
            answered=self.answered,
            pace=reply.pace,
            is_refused=opening is not None and opening.overflow is not None,
            retry=_name_retry(self),
            error=error,
            upstream_seconds=reply.last_byte_at - self.sent_at if reply.last_byte_at and self.sent_at else None,
            phase_seconds=self.attempt.seconds,
        )


def _describe_prompt(journey: Journey) -> Prompt | None:
    compacted = journey.attempt.compacted
    if compacted is None:
        return None
    sent_tokens = compacted.sent_tokens if journey.target.mode == "enforce" else compacted.original_tokens
    sent_tokens = sent_tokens if journey.sent_at else 0
    return Prompt(compacted.original_tokens, sent_tokens, compacted.limit_tokens, compacted.decisions)


def _name_outcome(journey: Journey, status: int) -> str:
    """The metrics' word for it. How it ended comes before what was done."""
    if journey.reply.broken:
        return "broken"
    if journey.reply.client_left or not status:
        return "aborted"
    return journey.attempt.outcome if journey.error is None else "refused"


def _name_retry(journey: Journey) -> str:
    """What became of the second attempt; `hopeless` if nothing shorter could be sent."""
    opening = journey.opening
    overflow = None if opening is None else opening.overflow
    if journey.attempts < 2:
        return "hopeless" if overflow is not None else ""
    if journey.error is not None or opening is None:
        return "aborted" if journey.error is None else "failed"
    if overflow is not None:
        return "refused"
    return "recovered" if opening.status == 200 else "failed"
