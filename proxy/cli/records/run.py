"""Replays an input: each request once, in its order, in one or more variants.

Law: one request at a time. What is kept of it is figures, and caches of bounded size. A difference from what was
recorded is named in words, without any text of the conversation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from trimtab.proxy.account.outcome import Outcome
from trimtab.proxy.account.recordings.folder import RecordingFile
from trimtab.proxy.account.recordings.format import BadRecordingError, Circumstances, Counted, Recording
from trimtab.proxy.catalogue.prices import find_listed
from trimtab.proxy.cli.records.course import Needed, Series
from trimtab.proxy.cli.records.inputs import LogReader, Sessions, estimate_tokens, split_turns
from trimtab.proxy.cli.records.sums import (
    SLIDING,
    SUCCESS_STATUS,
    TOO_LONG,
    UNKNOWN,
    UPSTREAM_REFUSES,
    Paid,
    RequestFigures,
    SummaryFigures,
    VariantSums,
    read_summary_figures,
    slide_window,
)
from trimtab.proxy.cli.records.variants import (
    ConfiguredVariants,
    ExpectedSummaries,
    PaidVariant,
    RecordedVariants,
    compact_again,
    read,
    remember,
)
from trimtab.proxy.compaction.engine import Compaction
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.wire.codec import Request, UndecodableError
from trimtab.rules.conversation import Conversation, Decision

REPLACED = "; a credential was replaced in the recorded body"
MAX_PLACES = 20
"""Places that are named of each kind. Chosen: as many as a reader follows up; the others are counted."""
Advance = Callable[[int], None]
"""Is told how much of the input was read: files, or bytes."""


@dataclass(slots=True)
class Places:
    """Places of the input with what is to say about them: all counted, the first MAX_PLACES named."""

    number: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)

    def add(self, place: str, reason: str) -> None:
        self.number += 1
        if len(self.named) < MAX_PLACES:
            self.named.append((place, reason))


@dataclass(slots=True)
class Replay:
    """A replay under way, and its result.

    variants: the sums of each, in the order in which they are told.
    configured: the configurations to replay with, by the names of their variants. Recordings without one, or with one,
        are also replayed as they were recorded.
    unreadable: what is no request. differing: requests that were recorded otherwise. not_replayed: requests of which
        only the recorded figures are known.
    needed: the identifiers that the next answers need, by variant and for a sliding window; None if nobody asks.
    """

    compactors: Compactors
    variants: list[VariantSums]
    configured: dict[str, ConfiguredVariants] = field(default_factory=dict)
    requests: int = 0
    first_at: float | None = None
    last_at: float | None = None
    unreadable: Places = field(default_factory=Places)
    differing: Places = field(default_factory=Places)
    not_replayed: int = 0
    redacted: int = 0
    series: Series = field(default_factory=Series)
    needed: Needed | None = None
    _recorded: RecordedVariants = field(init=False)
    _sessions: Sessions = field(default_factory=Sessions)
    _expected: dict[str, ExpectedSummaries] = field(init=False)
    _sent: dict[str, int] = field(default_factory=dict)
    _forwarded: dict[str, Conversation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._recorded = RecordedVariants(self.compactors)
        self._expected = {name: ExpectedSummaries(self._recorded.texts) for name in self.configured}

    def read_recordings(self, files: list[RecordingFile], advance: Advance) -> None:
        for file in files:
            try:
                self._take_recording(file.read())
            except BadRecordingError as error:
                self.unreadable.add(file.path.name, str(error))
            advance(1)

    def read_log(self, file: Path, advance: Advance) -> None:
        reader, sums = LogReader(), self.variants[0]
        for place, line in _read_lines(file, advance):
            try:
                figures = reader.read(line)
            except ValueError as error:
                self.unreadable.add(place, str(error))
                continue
            if isinstance(figures, SummaryFigures):
                sums.add_summary(figures)
            elif figures is not None:
                self.requests += 1
                _book_line(sums, figures, *reader.sent_to[figures.event.label])

    def read_bodies(self, file: Path, advance: Advance, *, dialect: str | None, model: str | None, turns: bool) -> None:
        """Replay a file of request bodies. turns: each line is a whole session, of which all requests are replayed."""
        for place, line in _read_lines(file, advance):
            session = place if turns else None
            try:
                for body in split_turns(line, dialect) if turns else (line,):
                    request = read(self.compactors, body, dialect)
                    self._take_body(request if model is None else replace(request, model=model), place, session)
            except UndecodableError:
                self.unreadable.add(place, f"not a request of the dialect {dialect or 'that it looks like'}")

    def _take_body(self, request: Request, place: str, session: str | None) -> None:
        self.requests += 1
        for sums, configured in zip(self.variants, self.configured.values(), strict=True):
            chosen = configured.choose(request)
            compaction = compact_again(self.compactors, request, chosen.variant)
            session = session or self._sessions.name(request.model, compaction.planned.plan.hashes, place)
            self._add(sums, _measure(chosen, compaction, None), compaction, chosen, session, 0.0)
        remember(self.compactors, request)

    def _take_recording(self, recording: Recording) -> None:
        event, summary = recording.event, read_summary_figures(recording)
        if summary is not None:
            if self.variants[0].name == "recorded":
                self.variants[0].add_summary(summary)
            return
        self.requests += 1
        self.first_at = event.at if self.first_at is None else self.first_at
        self.last_at = event.at
        figures = RequestFigures.of(recording)
        try:
            found = self._recorded.read(recording) if recording.counted.original else None
            if found is None:
                self.not_replayed += recording.counted.original
                for sums in self.variants:
                    sums.add(figures, None, None, session=event.session, at=event.at)
                return
            self.redacted += recording.is_redacted
            for sums in self.variants:
                self._replay_recording(sums, recording, *found, figures)
            remember(self.compactors, found[0])
        except (UndecodableError, ValueError):  # ValueError: values that no trimtab has written
            self.differing.add(recording.id, "its body can no longer be read")

    def _replay_recording(
        self,
        sums: VariantSums,
        recording: Recording,
        request: Request,
        circumstances: Circumstances,
        figures: RequestFigures,
    ) -> None:
        event, configured = recording.event, self.configured.get(sums.name)
        if configured is None:
            chosen, compaction = self._recorded.compact(recording, request, circumstances)
            difference = find_difference(recording, compaction)
            if difference and not recording.is_redacted:
                self.differing.add(recording.id, difference)
            measured = _count(figures.event, compaction, figures.completion_source, is_sent=figures.counted.sent)
        else:
            chosen = configured.choose(request, recording)
            choose_text = self._expected[sums.name].choose_text(chosen.variant, event.session)
            compaction = compact_again(self.compactors, request, chosen.variant, choose_text)
            measured = _measure(chosen, compaction, figures)
        self._add(sums, measured, compaction, chosen, event.session, event.at)

    def _add(
        self,
        sums: VariantSums,
        figures: RequestFigures,
        compaction: Compaction,
        chosen: PaidVariant,
        session: str,
        at: float,
    ) -> None:
        sums.add(figures, compaction, chosen.paid, session=session, at=at)
        if sums.name in self.configured and compaction.is_enforced:
            self._ask(sums, chosen, compaction, session)
        self._sent[sums.name] = figures.sent_tokens
        if figures.counted.sent:
            self._forwarded[sums.name] = compaction.sent
        if sums is not self.variants[-1]:
            return
        if self.needed is not None:
            original = compaction.planned.original
            self._forwarded[SLIDING] = slide_window(original, compaction.planned.plan.limit)
            self.needed.add(f"{session} {compaction.request.model}", original, self._forwarded)
        self._forwarded = {}
        if self.series.begin():
            costs = {each.name: each.sum_costs() for each in self.variants}
            self.series.add(figures.original_tokens, dict(self._sent), costs)

    def _ask(self, sums: VariantSums, chosen: PaidVariant, compaction: Compaction, session: str) -> None:
        expected = self._expected[sums.name]
        for call in expected.ask(chosen, compaction.original_plan, session):
            sums.add_summary(call, session)
        is_new = expected.stands_in(compaction.planned.plan, compaction.text, session)
        sums.figures.of(chosen.label).stand_ins += is_new


def _book_line(sums: VariantSums, figures: RequestFigures, upstream: str, model: str) -> None:
    prices = find_listed(f"https://{upstream}", model) if upstream else None
    paid = None if prices is None or not prices.is_in_dollars else Paid(prices)
    tokens = estimate_tokens(figures)
    sums.add(figures, None, paid, session="", at=0.0)
    if paid is not None and tokens is not None:
        sums.book(figures.event.label, paid, tokens)


def _measure(chosen: PaidVariant, compaction: Compaction, recorded: RequestFigures | None) -> RequestFigures:
    """The figures that a request would have had in a configured variant. recorded: None for a body of a file."""
    is_refused = compaction.is_refused
    was_sent = recorded is None or recorded.counted.sent or recorded.event.error == TOO_LONG
    event = structs.replace(
        UNKNOWN,
        label=chosen.label,
        endpoint=compaction.request.codec.name,
        status=400 if is_refused else SUCCESS_STATUS,
        outcome=compaction.outcome,
        completion_tokens=None if recorded is None else recorded.event.completion_tokens,
        error=TOO_LONG if is_refused else "",
    )
    source = "upstream" if recorded is None else recorded.completion_source
    return _count(event, compaction, source, is_sent=was_sent and not is_refused)


def _count(event: Outcome, compaction: Compaction, source: str, *, is_sent: bool) -> RequestFigures:
    compacted = compaction.compacted
    counts = is_sent and compaction.is_enforced and event.retry not in UPSTREAM_REFUSES
    event = structs.replace(
        event,
        original_sections=compacted.original_sections,
        sent_sections=compaction.sent_sections,
        limit_tokens=compacted.limit_tokens,
    )
    counted = Counted(original=True, sent=is_sent, decisions=compacted.decisions if counts else ())
    return RequestFigures(event, counted, source)


def find_difference(recording: Recording, compaction: Compaction) -> str:
    """What differs between the recording and the plan that was made again; empty if nothing does."""
    difference = _compare(recording, compaction)
    return difference + REPLACED if difference and recording.is_redacted else difference


def _compare(recording: Recording, compaction: Compaction) -> str:
    event, counted, compacted = recording.event, recording.counted, compaction.compacted
    if counted.original and event.original_tokens != compacted.original_tokens:
        return f"the client's prompt has {compacted.original_tokens} tokens now, and had {event.original_tokens}"
    sent_tokens = compacted.sent_tokens if compaction.is_enforced else compacted.original_tokens
    if counted.sent and event.sent_tokens != sent_tokens:
        return f"the prompt that is sent has {sent_tokens} tokens now, and had {event.sent_tokens}"
    was, now = _list(counted.decisions), _list(compacted.decisions)
    if counted.decisions and now != was:
        return f"the decisions are {now} now, and were {was}"
    sent = recording.sent_body
    if sent is None or recording.sent is None:
        return ""
    body = recording.received_body if compaction.body is None else compaction.body
    return "the body differs" if body != sent else ""


def _list(decisions: Sequence[Decision]) -> str:
    return ", ".join(f"{one.rule} ({one.saved_tokens})" for one in decisions) or "none"


def _read_lines(file: Path, advance: Advance) -> Iterator[tuple[str, bytes]]:
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield f"line {number}", line.rstrip(b"\r\n")
            advance(len(line))
