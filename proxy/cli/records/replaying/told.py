"""What one request adds to the figures, and what one call for a summary does.

Law: values. All tokens are the model's own, as in the metrics.
"""

from dataclasses import dataclass

from proxy.account.recordings.format import Recording
from proxy.state.catalogue.costs import Tokens
from rules.conversation import Decision
from rules.tokens.sections import Sections

SUCCESS_STATUS = 200
"""Source: the metrics count an answer as such by this status."""
TOO_LONG = "context_length_exceeded"
"""The error of a request that trimtab refuses for its length."""
UPSTREAM_REFUSES = frozenset({"refused", "hopeless"})
"""What became of a second attempt, if the client got the upstream's refusal. Its savings are not counted."""


@dataclass(frozen=True, slots=True)
class Told:
    """One request.

    label: of its model in the metrics.
    original, sent: the prompt by section, as the client sent it and as forwarded; None if it is not counted.
    limit_tokens: what it was planned for; 0 if it was not planned.
    decisions: those whose savings count.
    prompt_tokens, cached_tokens, written_tokens, completion_tokens: of the answer; None if they are not known.
    completion_source: who counted the last: `upstream`, `estimated` by trimtab, or `unknown`.
    prefix_kept: share of what was sent that equals the previous request of the session; None if it is not known.
    cost, without_cost: what the proxy has booked, in nanodollars; None if no price in dollars is known.
    retry: what became of a second attempt; empty if there was none.
    """

    label: str
    endpoint: str
    status: int
    outcome: str
    original: Sections | None = None
    sent: Sections | None = None
    limit_tokens: int = 0
    decisions: tuple[Decision, ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    written_tokens: int | None = None
    completion_tokens: int | None = None
    completion_source: str = "upstream"
    prefix_kept: float | None = None
    cost: int | None = None
    without_cost: int | None = None
    retry: str = ""
    error: str = ""

    @property
    def original_tokens(self) -> int:
        """The prompt as the client sent it; 0 if it is not counted."""
        return 0 if self.original is None else self.original.tokens

    @property
    def sent_tokens(self) -> int:
        """The prompt as forwarded; 0 if nothing was sent, or if it is not counted."""
        return 0 if self.sent is None else self.sent.tokens


@dataclass(frozen=True, slots=True)
class ToldSummary:
    """One call for a summary.

    label: of the model in the metrics. prompt_tokens, completion_tokens: as the metrics count them.
    charged: None if nothing was charged, or if that is not known. cost: in nanodollars.
    """

    label: str
    result: str
    prompt_tokens: int
    completion_tokens: int
    charged: Tokens | None = None
    cost: int | None = None


def tell_recorded(recording: Recording) -> Told:
    """What the metrics counted of a recorded request."""
    event, counted = recording.event, recording.counted
    return Told(
        label=event.label,
        endpoint=event.endpoint,
        status=event.status,
        outcome=event.outcome,
        original=Sections(*event.original_sections) if counted.original else None,
        sent=Sections(*event.sent_sections) if counted.sent else None,
        limit_tokens=event.limit_tokens,
        decisions=counted.decisions,
        prompt_tokens=event.prompt_tokens,
        cached_tokens=event.cached_tokens,
        written_tokens=event.written_tokens,
        completion_tokens=event.completion_tokens,
        completion_source="estimated" if event.is_estimated else "upstream",
        prefix_kept=event.prefix_kept,
        cost=event.cost,
        without_cost=event.without_cost,
        retry=event.retry,
        error=event.error,
    )


def tell_recorded_summary(recording: Recording) -> ToldSummary | None:
    """What the metrics counted of a recorded call for a summary; None if the recording is that of a request."""
    call = recording.call
    if call is None:
        return None
    return ToldSummary(call.label, call.result, call.prompt_tokens, call.completion_tokens, call.charged, call.cost)
