"""What one request shows to people: figures and decisions, no text of a conversation.

Law: values. All tokens are the model's own, as in the metrics; all money is in nanodollars, as in the books.
"""

from dataclasses import dataclass, field

from proxy.telemetry.ledger import Entry
from rules.pipeline.story.values import Change


@dataclass(frozen=True, slots=True)
class EventCut:
    """A cut of the session, made by this request or an earlier one.

    kind: summarise or digest. at: index of the first message that stays. made_at: number of messages when it was made.
    """

    kind: str
    at: int
    made_at: int


@dataclass(frozen=True, slots=True)
class EventWindow:
    """The window of the session at this request.

    high_tokens, low_tokens: the waters, as sizes of the whole prompt.
    prune_stop: results before this message are placeholders.
    cuts: all so far, oldest first; the last one is in effect.
    """

    high_tokens: int
    low_tokens: int
    prune_stop: int = 0
    cuts: tuple[EventCut, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One request that was served or given up.

    at: when it ended, in seconds since 1970. seconds: how long it took.
    session: hash of the tenant, the model and the transcript up to its first user message, without the leading system
        messages; empty if the request was not decoded.
    label, client: the model's label and the client's name in the metrics. model: the name as it may be shown.
    messages: number of messages that the client sent.
    original_sections, sent_sections: tokens of system, summary, memory, recent and current.
    original_tokens, sent_tokens, limit_tokens: 0 if the prompt was not counted.
    prompt_tokens, cached_tokens, written_tokens: as the upstream reports them; None if it does not.
    completion_tokens: the upstream's figure, or trimtab's if `is_estimated`.
    prefix_kept: share of the prompt that equals the previous request's prefix; None if not known.
    summary_id, summary_kind, summary_messages: the stored summary in what was sent; empty and 0 if there is none.
    summary_instead: why it is a digest although a model's summary was wanted; else empty.
    retry: what became of a second attempt; empty if there was none.
    overhead_seconds: what trimtab added before the request was sent.
    cost, without_cost: what it cost, and would have cost without trimtab; None if no price in dollars is known.
    error, reason: the code and the words of an error of trimtab's own.
    """

    request_id: str
    at: float
    seconds: float
    endpoint: str
    method: str
    path: str
    status: int
    outcome: str
    session: str = ""
    label: str = ""
    model: str = ""
    upstream: str = ""
    client: str = ""
    mode: str = ""
    messages: int = 0
    original_tokens: int = 0
    sent_tokens: int = 0
    limit_tokens: int = 0
    original_sections: tuple[int, ...] = ()
    sent_sections: tuple[int, ...] = ()
    decisions: tuple[Entry, ...] = ()
    window: EventWindow | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    written_tokens: int | None = None
    completion_tokens: int | None = None
    is_estimated: bool = False
    prefix_kept: float | None = None
    cache_miss: str = ""
    idle_seconds: float | None = None
    summary_id: str = ""
    summary_kind: str = ""
    summary_messages: int = 0
    summary_instead: str = ""
    is_client_compaction: bool = False
    retry: str = ""
    overhead_seconds: float = 0.0
    first_token_seconds: float | None = None
    cost: int | None = None
    without_cost: int | None = None
    error: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EventText:
    """The text that belongs to an event: only if the user asked for it.

    sentences: what was done, told in order. changes: each changed message.
    summary: the text of the summary in what was sent; empty if there is none.
    """

    sentences: tuple[str, ...] = ()
    changes: tuple[Change, ...] = field(default=(), repr=False)
    summary: str = field(default="", repr=False)
