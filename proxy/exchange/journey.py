"""The journey of a request: what its stages found out, and the headers of its answer.

Law: each field of a journey is the result of one stage. Only serve.py, the ways of requests that pass, and the router
write to it.
"""

import time
from dataclasses import dataclass, field

from proxy.account.outcome import NOTHING_ANSWERED, Answered
from proxy.compaction.compactor import Compacted
from proxy.exchange.answer import Observed
from proxy.exchange.arrival import Arrival
from proxy.exchange.attempt import Attempt, Passed, Prepared
from proxy.exchange.early_answer import Opening
from proxy.exchange.route import Target
from proxy.exchange.trace import NO_TRACE, Trace
from proxy.http.client import Sending
from proxy.http.errors import ProxyError
from proxy.http.headers import Headers, write_ledger_headers, write_own_headers
from proxy.http.relay import Reply
from proxy.state.catalogue.prices import Bill
from proxy.telemetry.ledger import Ledger, Prompt
from proxy.wire.codec import Request
from rules.tokens.sections import Sections

MAX_ATTEMPTS = 2  # chosen: a second refusal goes to the client, so that no request loops
NO_TARGET = Target("")
"""Of a request that was not read yet."""
_NO_ATTEMPT = Passed("aborted")
_NOTHING_OBSERVED = Observed()
_NO_SECTIONS = Sections()


@dataclass(slots=True)
class Journey:
    """One request under way.

    request: what the client sent; None if it was not decoded.
    ledger: all decisions about it, also those of an attempt that was refused.
    attempts: how often it was sent, or was about to be.
    sent_at: time of the first attempt on the monotonic clock; 0.0 before it.
    sending: the last attempt on its way to the upstream; None before.
    asks_usage: the client wants the stream to end with `usage`.
    opening: the beginning of the last attempt's answer; None before it.
    is_hopeless: the client gets the refusal, because nothing shorter could be sent.
    is_count: the upstream only counts the prompt's tokens.
    is_over: the request got its answer, or its client left. If false at the end, an unexpected error stopped it.
    trace: its spans. response_model: the model that has answered, in the form for the log; only known if it is traced.
    """

    arrival: Arrival
    reply: Reply
    target: Target = NO_TARGET
    attempt: Attempt = _NO_ATTEMPT
    ledger: Ledger = field(default_factory=Ledger)
    attempts: int = 0
    sent_at: float = 0.0
    sending: Sending | None = None
    asks_usage: bool = False
    opening: Opening | None = None
    answered: Answered = NOTHING_ANSWERED
    observed: Observed = _NOTHING_OBSERVED
    bill: Bill | None = None
    error: ProxyError | None = None
    is_hopeless: bool = False
    is_count: bool = False
    is_over: bool = False
    trace: Trace = NO_TRACE
    response_model: str = ""
    request: Request | None = None

    def begin_attempt(self) -> None:
        """Note that the request is sent, or sent again."""
        self.attempts += 1
        self.sent_at = self.sent_at or time.monotonic()
        self.opening = None

    def repeat_attempt(self, plain: Prepared) -> None:
        """Send the attempt again in another form. It does not count as another attempt."""
        self.attempt = plain
        self.attempts -= 1

    def write_headers(self) -> Headers:
        """The `x-trimtab-*` headers to add to the answer."""
        prompt, attempt = _describe_prompt(self), self.attempt
        planned = attempt.chosen.planned if isinstance(attempt, Prepared) else None
        overhead_seconds = (self.sent_at or time.monotonic()) - self.arrival.started_at
        outcome = attempt.outcome if self.error is None else self.error.outcome
        if planned is not None and planned.original.continues:
            outcome += ";history=upstream"
        if planned is not None and planned.plan.is_client_compaction:
            outcome += ";compaction=client"
        if prompt is None:
            return write_own_headers(self.arrival.request_id, overhead_seconds, outcome)
        tokens = {"original": prompt.original_tokens, "sent": prompt.sent_tokens, "limit": prompt.limit_tokens}
        is_over = prompt.original_tokens > prompt.limit_tokens  # for a request that was refused: it has no plan
        if is_over if planned is None else planned.plan.window.is_near:
            tokens["high_water"] = True
        headers = write_own_headers(self.arrival.request_id, overhead_seconds, outcome, tokens)
        return [*headers, *write_ledger_headers(prompt)]


def find_sent(journey: Journey, compacted: Compacted) -> tuple[int, Sections]:
    """The tokens of what was sent, and their sections; 0 if nothing was."""
    if not journey.sent_at:
        return 0, _NO_SECTIONS
    if journey.target.mode != "enforce":
        return compacted.original_tokens, compacted.original_sections
    return compacted.sent_tokens, compacted.sent_sections


def _describe_prompt(journey: Journey) -> Prompt | None:
    attempt, compacted = journey.attempt, journey.attempt.compacted
    if compacted is None:
        return None
    sent_tokens, sent = find_sent(journey, compacted)
    return Prompt(
        original_tokens=compacted.original_tokens,
        sent_tokens=sent_tokens,
        limit_tokens=compacted.limit_tokens,
        decisions=compacted.decisions,
        original_sections=compacted.original_sections,
        sent_sections=sent,
        entries=journey.ledger.entries,
        summary=attempt.summary if isinstance(attempt, Prepared) else None,
    )
