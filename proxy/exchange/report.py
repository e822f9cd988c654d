"""What is known of one request when it has been served.

Law: built once, when the request is over. Metrics and the log line are written from it and from nothing else.
"""

from dataclasses import dataclass, field

from proxy.exchange.arrival import Arrival
from proxy.http.errors import ProxyError
from proxy.telemetry.pace import Pace
from rules.conversation import Decision


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
    a stream had, None if that is not known. `prefix_kept` is the share of the prompt that the upstream had read before.
    """

    prompt_tokens: int | None = None
    cached_tokens: int = 0
    completion_tokens: int | None = None
    is_estimated: bool = False
    streamed_tokens: int | None = None
    prefix_kept: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One request that has been served, or given up. Times are of the monotonic clock.

    `prompt` is None if nothing is known of it. `is_refused`: the prompt was too long for the upstream, and that is the
    answer. `retry` is what became of a second attempt, empty if there was no reason for one. `upstream_seconds` are
    those from the first attempt to the end of the answer. `phase_seconds` are those of each phase of compaction.
    """

    arrival: Arrival
    target: Target
    status: int
    outcome: str
    seconds: float
    prompt: Prompt | None = None
    answered: Answered = field(default_factory=Answered)
    pace: Pace = field(default_factory=Pace)
    is_refused: bool = False
    retry: str = ""
    error: ProxyError | None = None
    upstream_seconds: float | None = None
    phase_seconds: tuple[tuple[str, float], ...] = ()
