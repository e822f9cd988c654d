"""Writes the text of a request for the dashboard: what became of each message.

Law: only if the user asked for it, in a thread, after the client has its answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from proxy.account.history.event import Event, EventText
from proxy.account.history.kept import History
from proxy.account.history.texts import Packed, pack_text
from proxy.account.history.writer import Work
from proxy.config.schema import Config
from proxy.exchange.arrival import Arrival
from proxy.exchange.attempt import Prepared
from proxy.exchange.journey import Journey
from proxy.exchange.report import Recorder, fail_open
from proxy.exchange.services import Services
from proxy.exchange.telling.hidden import Hidden, find_hidden
from proxy.exchange.telling.redact import redact_text
from proxy.memory import KEPT_FACTOR
from rules.conversation import Outcome
from rules.pipeline.plan import Plan
from rules.pipeline.story.tell import tell_story
from rules.pipeline.story.values import Change, Fate

MAX_MESSAGE_CHARS = 64 * 1024
"""The most that is kept of a message's text before, and after. Chosen: more than a person reads."""
MAX_TEXT_CHARS = 4 * 1024 * 1024
"""The most that is kept of a request. Chosen: a long session, whole."""


@dataclass(frozen=True, slots=True)
class _Told:
    """Everything that a text is written from. `summary`: its text; empty for a digest."""

    event: Event
    plan: Plan
    outcome: Outcome
    ratio: float
    summary: str = field(repr=False)
    config: Config = field(repr=False)
    arrival: Arrival = field(repr=False)


def tell_text(services: Services, history: History, journey: Journey, event: Event) -> None:
    """Have the text of a request written, if anything was changed."""
    attempt = journey.attempt
    if not isinstance(attempt, Prepared) or not attempt.compacted.decisions:
        return
    call, chosen, compacted = attempt.call, attempt.chosen, attempt.compacted
    outcome = Outcome(compacted.forwarded, compacted.decisions)
    summary = "" if chosen.text is None or attempt.summary is None else chosen.text.text
    told = _Told(
        event,
        chosen.planned.plan,
        outcome,
        chosen.planned.policy.token_ratio,
        summary,
        services.config,
        journey.arrival,
    )
    size_bytes = KEPT_FACTOR * len(call.request.body)
    history.texts.expect(event.request_id, event.session)
    history.writer.add(Work(event.request_id, size_bytes, lambda: _pack(services.recorder, told)))


def _pack(recorder: Recorder, told: _Told) -> Packed | None:
    with fail_open(recorder, told.event.request_id, "tell"):
        return pack_text(told.event.session, _write(told))
    return None


def _write(told: _Told) -> EventText:
    story = tell_story(told.plan, told.outcome, ratio=told.ratio)
    hidden = find_hidden(told.config, told.arrival)
    changes, summary = [_redact(change, hidden) for change in story.changes], redact_text(told.summary, hidden)
    if not summary and told.event.summary_kind:  # a digest
        summary = max((change.after for change in changes if change.fate is Fate.ADDED), key=len, default="")
    sentences = tuple(redact_text(sentence.text, hidden) for sentence in story.sentences)
    return EventText(sentences, tuple(_crop(changes)), crop(summary, MAX_MESSAGE_CHARS))


def _redact(change: Change, hidden: Hidden) -> Change:
    """The change without credentials. It is made before any text is cropped, or else a part of a key could stay."""
    role, tool = redact_text(change.role, hidden), redact_text(change.tool, hidden)
    before, after = redact_text(change.before, hidden), redact_text(change.after, hidden)
    return replace(change, role=role, tool=tool, before=before, after=after)


def _crop(changes: Sequence[Change]) -> Iterator[Change]:
    """The changes, the newest first to get their texts; in their own order."""
    left, cropped = MAX_TEXT_CHARS, []
    for change in reversed(changes):
        before, after = (crop(text, min(left, MAX_MESSAGE_CHARS)) for text in (change.before, change.after))
        left = max(left - len(before) - len(after), 0)
        cropped.append(replace(change, before=before, after=after))
    return reversed(cropped)


def crop(text: str, most_chars: int) -> str:
    """The beginning of a text, and how much more there is."""
    if len(text) > most_chars:
        text = f"{text[:most_chars]}\n[{len(text) - most_chars} more characters are not kept]"
    return clean(text)


def clean(text: str) -> str:
    """The text without lone surrogates, which no encoder takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
