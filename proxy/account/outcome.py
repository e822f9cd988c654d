"""What became of one request: each figure is declared here, once, with the places that show it.

Law: figures, names and decisions only, in the form that may be logged; no text of a conversation. All tokens are the
model's own, as in the metrics; all money is in nanodollars, as in the books. What is not known is None or empty, and is
shown nowhere. The log line, the span, the dashboard's JSON and a recording are made from the declarations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any, get_type_hints

import msgspec

from trimtab.proxy.catalogue.prices import NANODOLLARS, Bill
from trimtab.proxy.telemetry.ledger import Entry
from trimtab.proxy.telemetry.savings import FIRST_ERROR
from trimtab.proxy.telemetry.spans import Attributes
from trimtab.rules.conversation import Decision
from trimtab.rules.pipeline.changes import Change
from trimtab.rules.tokens.sections import Sections

LARGE_HEAD = 0.5  # Share of the limit. Chosen: the conversation has less room than what stands before it.
HEAD_REMEDY = "send fewer tools (drop_tools), or raise the window: the server's, and context_window if it is set"
NAME_CHARS = 16  # Of a session, in hexadecimal. Chosen: 64 bits; the names of a million sessions differ.
ID_BYTES = 12  # chosen: random ids of 96 bits do not collide


class Shown(msgspec.Struct, frozen=True):
    """Where a figure is shown.

    in_log: in the log line, under its own name, rounded to `digits`.
    is_kept: in the dashboard's JSON and in recordings, under its own name.
    of_prompt: in the log and the span only if the prompt was counted.
    span: its attribute in the request's span; empty for none.
    histogram: the member of Metrics that observes it by the model's label; empty for none.
    """

    in_log: bool = False
    digits: int | None = None
    is_kept: bool = True
    of_prompt: bool = False
    span: str = ""
    histogram: str = ""


KEPT = Shown()
LOGGED = Shown(in_log=True)
HELD = Shown(is_kept=False)  # Shown in no line of its own: something else is made from it


def read_head(sections: Sequence[int], limit_tokens: int) -> float:
    """The share of the limit that instructions and tools take, if it is large; else 0."""
    share = sections[0] / limit_tokens if sections and limit_tokens else 0.0
    return share if share >= LARGE_HEAD else 0.0


class Answered(msgspec.Struct, frozen=True):
    """The figures of the answer, in the model's own tokens; None is what the upstream does not report.

    completion_tokens: ours if `is_estimated`; None if nothing answered. streamed_tokens: of the streamed text.
    ends_turn: the answer calls no tool, so the user has the turn.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    is_estimated: bool = False
    streamed_tokens: int | None = None
    written_tokens: int | None = None
    ends_turn: bool = False


NOTHING_ANSWERED = Answered()


Prompt = tuple[int, int]
"""A prompt in the sums: the tokens as the client sent it, and as forwarded, both as trimtab counts them."""


class Cut(msgspec.Struct, frozen=True):
    """A cut of the session: the first message that stays, and the number of messages when it was made."""

    kind: str
    at: int
    made_at: int


class Window(msgspec.Struct, frozen=True):
    """The window of the session at this request.

    high_tokens, low_tokens: the waters, as sizes of the whole prompt.
    prune_stop: results before this message are placeholders.
    cuts: all so far, oldest first; the last one is in effect.
    """

    high_tokens: int
    low_tokens: int
    prune_stop: int = 0
    cuts: tuple[Cut, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """One request that was served or given up. It is a Struct, because a frozen dataclass costs a call for each field.

    at: when it ended, in seconds since 1970. seconds: from the arrival of the head to the end of the answer.
    status: that the client got; 0 if it left before. model, upstream: as they may be shown; label, client: in metrics.
    match: the glob of `models` in the configuration that the model matches.
    recall_rounds, recall_prompt_tokens: the further requests for recall, and their prompts; None without any.
    retry: what became of a second attempt; empty if there was no reason for one.
    cache_miss: why the upstream read less from its prompt cache than it could have; empty if it did not.
    error, reason, context_cost: the code and words of an error of trimtab's own, and what has filled the prompt.
    session: hash of the tenant, the model and the transcript up to its first user message, without the leading system
        messages; empty if the request was not decoded. messages: the number of the client's.
    original_tokens, sent_tokens, limit_tokens: 0 if the prompt was not counted, the second also if nothing was sent.
    original_sections, sent_sections: tokens of system, summary, memory, recent and current.
    decisions: all in order, also those of plans that were not sent, or that the upstream refused.
    summary_id, summary_kind, summary_messages: the stored summary in what was sent; empty and 0 if there is none.
    summary_instead: why it is a digest although a model's summary was wanted; else empty.
    is_client_compaction: the client asked for a summary of its own, and its request passed unchanged.
    prefix_kept: share of the prompt that equals the previous request's prefix.
    prompt_tokens, cached_tokens, written_tokens: as the upstream reports them. The last two are parts of the first.
    overhead_seconds: what trimtab added before the request was sent.
    first_token_seconds: from the arrival to the first text of a stream.
    """

    request_id: Annotated[str, LOGGED]
    at: Annotated[float, KEPT]
    endpoint: Annotated[str, LOGGED]
    method: Annotated[str, LOGGED]
    path: Annotated[str, LOGGED]
    status: Annotated[int, Shown(in_log=True, span="http.response.status_code")]
    outcome: Annotated[str, Shown(in_log=True, span="trimtab.outcome")]
    seconds: Annotated[float, Shown(in_log=True, digits=4)]
    client: Annotated[str, Shown(in_log=True, span="trimtab.client")] = ""
    upstream: Annotated[str, Shown(in_log=True, span="trimtab.upstream")] = ""
    model: Annotated[str, LOGGED] = ""
    match: Annotated[str | None, Shown(in_log=True, is_kept=False)] = None
    mode: Annotated[str, Shown(span="trimtab.mode")] = ""
    retry: Annotated[str, Shown(in_log=True, span="trimtab.retry")] = ""
    recall_rounds: Annotated[int | None, Shown(in_log=True, is_kept=False)] = None
    recall_prompt_tokens: Annotated[int | None, Shown(in_log=True, is_kept=False)] = None
    cache_miss: Annotated[str, Shown(in_log=True, span="trimtab.cache_miss")] = ""
    is_estimated: Annotated[bool, LOGGED] = False
    error: Annotated[str, LOGGED] = ""
    reason: Annotated[str, LOGGED] = ""
    context_cost: Annotated[Mapping[str, Any] | None, Shown(in_log=True, is_kept=False)] = None
    session: Annotated[str, KEPT] = ""
    label: Annotated[str, KEPT] = ""
    messages: Annotated[int, KEPT] = 0
    original_tokens: Annotated[int, Shown(in_log=True, of_prompt=True, span="trimtab.tokens.original")] = 0
    sent_tokens: Annotated[int, Shown(in_log=True, of_prompt=True, span="trimtab.tokens.sent")] = 0
    limit_tokens: Annotated[int, Shown(in_log=True, of_prompt=True, span="trimtab.tokens.limit")] = 0
    original_sections: Annotated[tuple[int, ...], KEPT] = ()
    sent_sections: Annotated[tuple[int, ...], KEPT] = ()
    decisions: Annotated[tuple[Entry, ...], KEPT] = ()
    window: Annotated[Window | None, KEPT] = None
    summary_id: Annotated[str, KEPT] = ""
    summary_kind: Annotated[str, Shown(of_prompt=True, span="trimtab.summary.kind")] = ""
    summary_messages: Annotated[int, KEPT] = 0
    summary_instead: Annotated[str, KEPT] = ""
    is_client_compaction: Annotated[bool, KEPT] = False
    prefix_kept: Annotated[float | None, Shown(in_log=True, digits=3, span="trimtab.prefix_kept_ratio")] = None
    prompt_tokens: Annotated[int | None, Shown(span="gen_ai.usage.input_tokens")] = None
    cached_tokens: Annotated[int | None, Shown(in_log=True, span="gen_ai.usage.cache_read.input_tokens")] = None
    written_tokens: Annotated[int | None, Shown(in_log=True, span="gen_ai.usage.cache_write.input_tokens")] = None
    idle_seconds: Annotated[float | None, LOGGED] = None
    completion_tokens: Annotated[int | None, Shown(in_log=True, span="gen_ai.usage.output_tokens")] = None
    overhead_seconds: Annotated[float, KEPT] = 0.0
    first_token_seconds: Annotated[float | None, Shown(histogram="time_to_first_token")] = None
    cost: Annotated[int | None, KEPT] = None
    without_cost: Annotated[int | None, KEPT] = None
    bill: Annotated[Bill | None, HELD] = None
    """Of which `cost` and `without_cost` are the sums."""
    cache_price: Annotated[float | None, HELD] = None
    """What a prompt token costs more if the prompt cache does not have it, in nanodollars."""
    has_prompt: Annotated[bool, HELD] = False
    """The prompt was counted."""
    is_uncompacted: Annotated[bool, HELD] = False
    """It was passed on at a path where prompts are not compacted, however long they are."""
    planned: Annotated[tuple[Decision, ...], HELD] = ()
    """The decisions of the plan that was sent."""
    phase_seconds: Annotated[tuple[tuple[str, float], ...], HELD] = ()
    """Name and duration of each phase of compaction, in order."""
    upstream_seconds: Annotated[float | None, Shown(is_kept=False, histogram="upstream_seconds")] = None
    """From the first attempt to the last byte of the answer."""
    tokens_per_second: Annotated[float | None, Shown(is_kept=False, histogram="output_rate")] = None
    """Of a streamed text, after its first chunk."""
    is_stream: Annotated[bool, Shown(is_kept=False, span="gen_ai.request.stream")] = False
    max_tokens: Annotated[int | None, Shown(is_kept=False, span="gen_ai.request.max_tokens")] = None
    """The completion that the client asks for."""
    response_model: Annotated[str, Shown(is_kept=False, span="gen_ai.response.model")] = ""
    first_chunk_seconds: Annotated[float | None, Shown(is_kept=False, span="gen_ai.response.time_to_first_chunk")] = (
        None
    )
    """From the first attempt to the first text of a stream."""
    is_compacted: Annotated[bool, Shown(is_kept=False, span="gen_ai.conversation.compacted")] = False
    """What was sent is not what the client wrote."""
    upstream_overhead_seconds: Annotated[float | None, Shown(is_kept=False, span="trimtab.overhead_seconds")] = None
    """`overhead_seconds` of a request that was sent."""

    @property
    def counted(self) -> Prompt | None:
        """Its prompt in all sums of tokens; None if it counts in none.

        It counts if the upstream has answered it, if only in part, or has its prompt and may charge for it. One that
        failed or was refused has saved nothing, and one that asks no model has no prompt. What recall asked more was
        sent, too.
        """
        if self.bill is None:
            return None
        if not self.has_prompt:
            return self.bill.without.prompt, self.bill.tokens.prompt
        return self.original_tokens, self.sent_tokens + (self.recall_prompt_tokens or 0)

    @property
    def has_failed(self) -> bool:
        """Whether the client got an error, whoever made it, or an answer that broke off."""
        return self.status >= FIRST_ERROR or self.outcome == "broken"

    @property
    def fresh_tokens(self) -> int | None:
        """The prompt tokens that were neither read from the cache nor written into it; None if it is not known."""
        if self.prompt_tokens is None or (self.cached_tokens is None and self.written_tokens is None):
            return None
        return self.prompt_tokens - (self.cached_tokens or 0) - (self.written_tokens or 0)

    @property
    def counted_decisions(self) -> tuple[Decision, ...]:
        """The decisions whose savings are counted in the metrics: those that were carried out, and answered."""
        return self.planned if self.mode == "enforce" and self.bill is not None else ()


@dataclass(frozen=True, slots=True)
class OutcomeText:
    """Text of an outcome, only if the user asked for it: what was done, in order; changed messages; the summary."""

    sentences: tuple[str, ...] = ()
    changes: tuple[Change, ...] = field(default=(), repr=False)
    summary: str = field(default="", repr=False)


_HINTS = get_type_hints(Outcome, include_extras=True)
FIGURES: dict[str, Shown] = {name: _HINTS[name].__metadata__[0] for name in Outcome.__struct_fields__}
"""Where each figure is shown."""
_KEPT_NAMES = tuple(name for name, shown in FIGURES.items() if shown.is_kept)
_read_kept = attrgetter(*_KEPT_NAMES)


def pick_kept(outcome: Outcome) -> dict[str, Any]:
    return dict(zip(_KEPT_NAMES, _read_kept(outcome), strict=True))


def keep(outcome: Outcome) -> dict[str, Any]:
    kept: dict[str, Any] = msgspec.to_builtins(pick_kept(outcome))
    return kept


class Line:
    """Some figures by the names under which they are shown; what is None, empty or false is left out, 0 is not."""

    __slots__ = ("_names", "_read")

    def __init__(self, figures: Mapping[str, str]) -> None:
        self._names = tuple(figures.values())
        self._read = attrgetter(*figures)

    def write(self, outcome: Outcome) -> dict[str, Any]:
        found = zip(self._names, self._read(outcome), strict=True)
        return {name: one for name, one in found if one is not None and one is not False and one != ""}


_LINE = Line({name: name for name, shown in FIGURES.items() if shown.in_log and not shown.of_prompt})
_PROMPT_LINE = Line({name: name for name, shown in FIGURES.items() if shown.in_log and shown.of_prompt})
_ROUNDED = tuple((name, shown.digits) for name, shown in FIGURES.items() if shown.digits is not None)
_ATTRIBUTES = Line({name: shown.span for name, shown in FIGURES.items() if shown.span and not shown.of_prompt})
_PROMPT_ATTRIBUTES = Line({name: shown.span for name, shown in FIGURES.items() if shown.span and shown.of_prompt})
FAILED = frozenset({"broken", "aborted"})
"""Outcomes of requests whose answer did not arrive as a whole; the word also names the kind of error."""


def write_line(outcome: Outcome) -> dict[str, Any]:
    """The fields of a log line, with our errors' words, which hold no text of clients: agents often hide them."""
    fields = _LINE.write(outcome)
    for name, digits in _ROUNDED:
        if name in fields:
            fields[name] = round(fields[name], digits)
    if outcome.mode and outcome.mode != "enforce":
        fields["mode"] = outcome.mode
    if outcome.is_client_compaction:
        fields["compaction"] = "client"
    if outcome.has_prompt:
        _write_prompt(outcome, fields)
    fresh_tokens = outcome.fresh_tokens
    if fresh_tokens is not None:
        fields["fresh_tokens"] = fresh_tokens
    return fields


def _write_prompt(outcome: Outcome, fields: dict[str, Any]) -> None:
    fields |= _PROMPT_LINE.write(outcome)
    named = zip(Sections._fields, outcome.original_sections, outcome.sent_sections, strict=True)
    fields["sections"] = {name: {"original": original, "sent": sent} for name, original, sent in named}
    fields["decisions"] = [entry.describe() for entry in outcome.decisions]
    if outcome.summary_kind:
        summary = {"id": outcome.summary_id, "kind": outcome.summary_kind, "messages": outcome.summary_messages}
        fields["summary"] = summary | ({"instead": outcome.summary_instead} if outcome.summary_instead else {})


def name_error(outcome: Outcome) -> str:
    return outcome.error or (outcome.outcome if outcome.outcome in FAILED else "")


def write_attributes(outcome: Outcome) -> Attributes:
    """The attributes of a request's last span. As the conventions for generative AI want it, no value is false."""
    told = _ATTRIBUTES.write(outcome)
    if not outcome.status:
        del told["http.response.status_code"]
    bill = outcome.bill
    if bill is not None and bill.cost is not None and bill.without_cost is not None:
        told["trimtab.cost_usd"] = bill.cost.total / NANODOLLARS
        told["trimtab.cost_without_usd"] = bill.without_cost.total / NANODOLLARS
    if outcome.has_prompt:
        saved = outcome.original_tokens - outcome.sent_tokens if outcome.sent_tokens else 0
        told |= _PROMPT_ATTRIBUTES.write(outcome)
        told["trimtab.tokens.saved"] = max(saved, 0)
        told["trimtab.rules"] = tuple(dict.fromkeys(decision.rule for decision in outcome.planned))
    return told
