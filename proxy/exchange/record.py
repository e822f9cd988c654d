"""Writes what is kept of a request that is over: its recording, and for the dashboard its text and its session's title.

Law: text only if the user asked for it, in a thread, after the client has its answer, and without any credential. On
the event loop, only references are taken. What a client's headers call a session stays in memory, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec import structs

from trimtab.proxy.account.history.kept import Text
from trimtab.proxy.account.history.texts import Packed, Title, pack_text
from trimtab.proxy.account.outcome import Outcome, OutcomeText, keep
from trimtab.proxy.account.recorder import fail_open
from trimtab.proxy.account.recordings.format import (
    Circumstances,
    Counted,
    RecordedRequest,
    RecordedSending,
    RecordedSummary,
    Recording,
    encode,
    write_body,
)
from trimtab.proxy.account.recordings.writing import Draft, Recordings
from trimtab.proxy.account.redact import Hidden, find_hidden, redact_body, redact_text, redact_value
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.exchange.arrival import Arrival, find_path_keys
from trimtab.proxy.exchange.attempt import NO_ATTEMPT, Attempt, Call, Prepared
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.http.credentials import is_credential, plain
from trimtab.proxy.memory import KEPT_FACTOR
from trimtab.proxy.wire.codec import Request
from trimtab.rules.conversation import Message, Role
from trimtab.rules.pipeline.appended import read_words
from trimtab.rules.pipeline.changes import Change, Fate
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.pipeline.story import Story
from trimtab.rules.summary.quoting import quote_line

MAX_MESSAGE_CHARS = 64 * 1024  # Kept of a message before, and after. Chosen: more than a person reads.
MAX_TEXT_CHARS = 4 * 1024 * 1024  # The most that is kept of a request. Chosen: a long session, whole.
TITLE_CHARS = 100  # Of a title. Chosen: a line of a table.
KEPT_HEADERS = frozenset(
    {
        "accept", "content-encoding", "content-type", "user-agent",
        "anthropic-beta", "anthropic-version", "openai-beta",
        "x-trimtab-mode", "x-trimtab-profile",
    }
)  # fmt: skip
"""The client's headers that are recorded: those that decide how a request is read and compacted, and who made it."""
MAX_COLD = 256  # Cuts at a cold cache recorded without a plan. Chosen: more than one session has.
READ_MESSAGES, READ_TEXTS, READ_CHARS = 8, 16, 16 * 1024
"""User messages that may hold the first words of a user, texts of each, and characters of each. Chosen: clients put
their own text in front, some thousand characters in one or two messages."""


class Over(NamedTuple):
    """A request that is over, as far as something of it is written: references only."""

    services: Services
    arrival: Arrival
    request: Request | None
    attempt: Attempt
    outcome: Outcome

    @property
    def prepared(self) -> Prepared | None:
        return self.attempt if isinstance(self.attempt, Prepared) else None

    def find_hidden(self) -> Hidden:
        arrival = self.arrival
        shown = arrival.secrets | find_path_keys(arrival.headers, arrival.target)
        return find_hidden(self.services.config, shown)


def tell_title(over: Over) -> None:
    """Have it written what the session of a request is called; once."""
    history, outcome = over.services.past, over.outcome
    if (prepared := over.prepared) is not None:
        keeps_text, request = history.keeps_text, over.request
        size_bytes = KEPT_FACTOR * len(request.body) if request is not None and keeps_text else 0
        messages = prepared.chosen.planned.plan.original.messages if keeps_text else ()
        over = over._replace(request=None, attempt=NO_ATTEMPT)
        history.add_text(Text("", outcome.session, outcome.at, size_bytes, partial(_write_title, over, messages)))


def _write_title(over: Over, messages: Sequence[Message]) -> Title | None:
    with fail_open(over.services.recorder, over.outcome.request_id, "tell"):
        hidden = over.find_hidden()
        names = dict.fromkeys(over.services.config.sessions.headers)
        values = dict.fromkeys(value for name, value in over.arrival.end_to_end if name.lower() in names)
        header = redact_text(clean(" ".join(values)), hidden)
        return Title(find_title(messages, hidden), quote_line(header, TITLE_CHARS))
    return None


def find_title(messages: Iterable[Message], hidden: Hidden) -> str:
    """The beginning of what the user said first, as one line; empty if it has no words."""
    users = (message for message in messages if message.role is Role.USER)
    for message in islice(users, READ_MESSAGES):
        texts = tuple([text[:READ_CHARS] for text in message.texts[:READ_TEXTS]])
        words = read_words(replace(message, texts=texts), ())
        if line := quote_line(redact_text(clean(words[:READ_CHARS]), hidden), TITLE_CHARS):
            return line
    return ""


def tell_text(over: Over) -> None:
    prepared, request, outcome = over.prepared, over.request, over.outcome
    if prepared is None or request is None or not prepared.compacted.decisions:
        return
    size_bytes = KEPT_FACTOR * len(request.body)
    write = partial(_pack, over, prepared)
    over.services.past.add_text(Text(outcome.request_id, outcome.session, outcome.at, size_bytes, write))


def _pack(over: Over, prepared: Prepared) -> Packed | None:
    with fail_open(over.services.recorder, over.outcome.request_id, "tell"):
        return pack_text(_write(over, prepared))
    return None


def _write(over: Over, prepared: Prepared) -> OutcomeText:
    text, hidden = prepared.chosen.text, over.find_hidden()
    story = prepared.chosen.planned.tell(prepared.compacted)
    changes = [_redact(change, hidden) for change in story.changes]
    summary = "" if text is None or prepared.summary is None else redact_text(text.shown, hidden)
    if not summary and over.outcome.summary_kind:  # a digest
        summary = max((change.after for change in changes if change.fate is Fate.ADDED), key=len, default="")
    sentences = tuple(redact_text(sentence.text, hidden) for sentence in story.sentences)
    return OutcomeText(sentences, tuple(_crop(changes)), crop(summary, MAX_MESSAGE_CHARS))


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
    if len(text) > most_chars:
        text = f"{text[:most_chars]}\n[{len(text) - most_chars} more characters are not kept]"
    return clean(text)


def clean(text: str) -> str:
    """The text without lone surrogates, which no encoder takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def record(over: Over, recordings: Recordings) -> None:
    outcome = over.outcome
    size_bytes = 0 if over.request is None else KEPT_FACTOR * len(over.request.body)
    size_bytes += sum(map(len, over.attempt.body or ()))
    recordings.add(Draft(outcome.at, outcome.request_id, partial(_make_content, over), size_bytes))


def _make_content(over: Over) -> bytes | None:
    with fail_open(over.services.recorder, over.outcome.request_id, "record"):
        return encode(_make_recording(over))
    return None


def _make_recording(over: Over) -> Recording:
    outcome, attempt, prepared = over.outcome, over.attempt, over.prepared
    added = () if attempt.compacted is None or attempt.body is None else attempt.compacted.headers
    was_sent = outcome.upstream_overhead_seconds is not None
    story = Story() if prepared is None else prepared.chosen.planned.tell(prepared.compacted)
    recording = Recording(
        event=outcome,
        request=_make_request(over),
        sent=RecordedSending(headers=dict(added)) if was_sent else None,
        circumstances=None
        if attempt.call is None
        else _describe_circumstances(over.services.compactors, attempt.call, attempt),
        summary=None if prepared is None else _make_summary(prepared),
        story=tuple(sentence.text for sentence in story.sentences),
        counted=Counted(outcome.has_prompt, bool(outcome.sent_tokens and outcome.counted), outcome.counted_decisions),
        bill=outcome.bill,
    )
    hidden = over.find_hidden()
    # Without credentials, in whatever member they are, and without figures that are not kept.
    values = {**msgspec.to_builtins(recording, str_keys=True), "event": keep(recording.event)}
    told = {name: redact_value(value, hidden, with_numbers=False) for name, value in values.items()}
    return _add_bodies(msgspec.convert(told, Recording, str_keys=True), over, hidden)


def _add_bodies(recording: Recording, over: Over, hidden: Hidden) -> Recording:
    arrived, pieces, request, sent = over.request, over.attempt.body, recording.request, recording.sent
    if arrived is None or request is None:
        return recording
    forwarded = arrived.body if sent is None or pieces is None else b"".join(pieces)
    body = redact_body(arrived.body, hidden)
    told = body if forwarded == arrived.body else redact_body(forwarded, hidden)
    is_redacted = (body, told) != (arrived.body, forwarded)
    if sent is not None and forwarded != arrived.body:
        sent = replace(sent, body=write_body(told))
    return structs.replace(
        recording, request=replace(request, body=write_body(body), is_redacted=is_redacted), sent=sent
    )


def _make_request(over: Over) -> RecordedRequest:
    """The head of the request; only names that hold no credential."""
    arrival, outcome, request = over.arrival, over.outcome, over.request
    headers = ((name.lower(), value) for name, value in arrival.end_to_end if not is_credential(plain(name)))
    kept = {name: value for name, value in headers if name in KEPT_HEADERS}
    dialect, is_count = (
        "" if arrival.passed is not None else arrival.endpoint,
        request is not None and request.codec.is_count,
    )
    return RecordedRequest(dialect, outcome.path, outcome.model, kept, is_count=is_count)


def _make_summary(prepared: Prepared) -> RecordedSummary | None:
    text, used = prepared.chosen.text, prepared.summary
    if text is None:
        return None
    kind, note = "summarise" if text.by_model else "digest", text.note.decode("utf-8", "replace")
    return RecordedSummary("" if used is None else used.id, kind, text.by_model, text.text, note)


def _describe_circumstances(compactors: Compactors, call: Call, attempt: Attempt) -> Circumstances:
    view, settings, upstream = call.view, call.route.settings, call.route.upstream
    plan = attempt.chosen.planned.plan if isinstance(attempt, Prepared) else None
    return Circumstances(
        config=settings.model_dump(mode="json", by_alias=True, exclude_unset=True),
        policy=view.policy,
        believed_tokens=view.believed_tokens,
        facts=view.facts,
        prices=view.price_list,
        upstream_url=upstream.base_url,
        count=settings.count,
        vocabulary=compactors.name_vocabulary(settings, call.route.target.model),
        request_max_tokens=call.request.max_tokens,
        local_items=settings.local_items,
        strips_nonces=upstream.strips_nonces,
        drop_tools=settings.drop_tools,
        cleaned=call.request.cleaned,
        cold=_find_cold(call, plan),
        put_off=plan is not None and plan.is_put_off,
        cuts=0 if plan is None else len(plan.window.cuts),
        is_test=isinstance(attempt, Prepared) and attempt.is_test,
        attempt=call.attempt,
        cache_adds=tuple(sorted(call.request.cache.adds)),
        found=() if plan is None or settings.recall != "tool" else tuple((pin.at, pin.line) for pin in plan.recalled),
    )


def _find_cold(call: Call, plan: Plan | None) -> Mapping[str, str]:
    """The cuts at a cold cache of this session; without a plan, all that are known of this client, some of them."""
    if plan is None:
        return {prefix.hex(): str(kind) for prefix, kind in islice(call.cold.items(), MAX_COLD)}
    return {plan.hashes[at].hex(): str(kind) for at, kind in plan.cold.items()}
