"""Replays an input: each request once, in its order, in one or more variants. Notes what the next answers needed.

Law: one request at a time. What is kept of it is figures, and caches of bounded size. A difference from what was
recorded is named in words, without any text of the conversation. Needed are whole identifiers only, by a definition
that does not change, so that figures of different days compare. Nobody answers from the shorter prompt: the answer is
the one that followed in the recording.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from msgspec import structs

from trimtab.proxy.account.outcome import Outcome
from trimtab.proxy.account.recordings.folder import RecordingFile
from trimtab.proxy.account.recordings.format import BadRecordingError, Circumstances, Counted, RecordedCall, Recording
from trimtab.proxy.catalogue.prices import find_listed
from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.cli.records.inputs import LogReader, Sessions, estimate_tokens, split_turns
from trimtab.proxy.cli.records.sums import (
    SLIDING,
    SUCCESS_STATUS,
    TOO_LONG,
    UNKNOWN,
    UPSTREAM_REFUSES,
    Pricing,
    RequestFigures,
    VariantSums,
    slide_window,
)
from trimtab.proxy.cli.records.variants import (
    ConfiguredVariants,
    ExpectedSummaries,
    PricedVariant,
    RecordedVariants,
    compact_again,
    read,
    remember,
)
from trimtab.proxy.compaction.engine import Compaction
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.wire.codec import Request, UndecodableError
from trimtab.rules.conversation import Conversation, Decision, Message, Role

LEAST_CHARS, MOST_CHARS = 5, 200  # of an identifier. Source: the same definition as below.
_STRIPPED = ".,:;-"
_IDENTIFIER = re.compile(
    r"""(?:[\w.+-]+@[\w-]+\.[\w.-]+)"""
    r"""|(?:https?://[^\s"'<>)\]]+)"""
    r"""|(?:(?:[\w.@~-]*/)+[\w.@~-]+)"""
    r"""|(?:[A-Za-z_]\w*(?:\.\w+)+)"""
    r"""|(?:\b[A-Za-z]+(?:_[A-Za-z0-9]+)+\b)"""
    r"""|(?:\b[a-z]+[A-Z]\w+\b)"""
    r"""|(?:#?\b(?=\w*\d)[A-Za-z0-9-]{5,}\b)"""
)
"""In this order: mail addresses, URLs, paths, dotted, snake and camel names, ids, and numbers of five characters and
more. Source: the definition in issue 16, copied exactly."""
MAX_READ_BYTES = 64 * 1024 * 1024  # Of messages that were read. Chosen: some hundred long sessions.
MAX_WAITING_BYTES = 256 * 1024 * 1024  # Of requests whose answer has not come. Chosen: some hundred long sessions.
TOKEN_BYTES, MESSAGE_BYTES, IDENTIFIER_BYTES = 4, 64, 120
"""What a token, a message that several conversations share, and an identifier cost. Estimates for CPython."""


def find_identifiers(text: str) -> frozenset[str]:
    found = (word.strip(_STRIPPED) for word in _IDENTIFIER.findall(text))
    return frozenset(word for word in found if LEAST_CHARS <= len(word) <= MOST_CHARS)


class Tally(msgspec.Struct):
    """Sums over requests. needed: identifiers of the next answer that the transcript had. kept: those forwarded."""

    needed: int = 0
    kept: int = 0

    def share_kept(self) -> float | None:
        return self.kept / self.needed if self.needed else None


class Needed(msgspec.Struct):
    """The needed identifiers, by variant. A request is measured when the next of its session comes, with the answer."""

    tallies: dict[str, Tally] = {}
    _read: "BytesLRU[tuple[str, ...], frozenset[str]]" = msgspec.field(
        default_factory=lambda: BytesLRU(
            MAX_READ_BYTES, lambda key, names: sum(map(len, key)) + len(names) * IDENTIFIER_BYTES
        )
    )
    _waiting: "BytesLRU[str, tuple[Conversation, dict[str, Conversation]]]" = msgspec.field(
        default_factory=lambda: BytesLRU(MAX_WAITING_BYTES, lambda _, one: _weigh(*one))
    )

    def add(self, session: str, original: Conversation, forwarded: dict[str, Conversation]) -> None:
        """Measure the session's request before this one, and keep this one. `forwarded`: by variant, if it was sent."""
        before = self._waiting.get(session)
        self._waiting[session] = original, forwarded
        for name in forwarded:
            self.tallies.setdefault(name, Tally())
        if before is None or (answer := _find_answer(before[0].messages, original.messages)) is None:
            return
        changed = {name: sent for name, sent in before[1].items() if sent.messages != before[0].messages}
        wanted = self._name(answer) & self._name(*before[0].messages) if changed else frozenset()
        for name, sent in changed.items() if wanted else ():
            tally = self.tallies.setdefault(name, Tally())
            tally.needed += len(wanted)
            tally.kept += len(wanted & self._name(*sent.messages))

    def _name(self, *messages: Message) -> frozenset[str]:
        """The identifiers in some messages. Each message is read once."""
        found: set[str] = set()
        for message in messages:
            key = (*message.texts, *(f"{call.name} {call.arguments}" for call in message.tool_calls))
            names = self._read.get(key)
            if names is None:
                names = self._read[key] = find_identifiers("\n".join(key))
            found |= names
        return frozenset(found)


def _find_answer(before: Sequence[Message], after: Sequence[Message]) -> Message | None:
    """The model's answer to a request, which the next one holds; None if that one does not continue it."""
    at = len(before)
    is_continued = 0 < at < len(after) and after[at - 1] == before[-1] and after[at].role is Role.ASSISTANT
    return after[at] if is_continued else None


def _weigh(original: Conversation, forwarded: Mapping[str, Conversation]) -> int:
    return TOKEN_BYTES * original.tokens + MESSAGE_BYTES * len(original.messages) * (1 + len(forwarded))


MAX_POINTS = 2000  # chosen: more than the pixels of a picture's width
_SIZE_INCHES = (10.0, 7.0)
_NAMES = {"trimtab": "with trimtab", "nothing": "unchanged", "sliding": "sliding window", "summaries": "summaries"}


class Point(msgspec.Struct, frozen=True):
    """The state after a request. sent_tokens: by variant. costs: all so far, by variant and strategy."""

    number: int
    original_tokens: int
    sent_tokens: Mapping[str, int]
    costs: Mapping[str, Mapping[str, float]]


class Series(msgspec.Struct):
    points: list[Point] = []
    _number: int = 0
    _stride: int = 1

    def begin(self) -> bool:
        self._number += 1
        return (self._number - 1) % self._stride == 0

    def add(
        self, original_tokens: int, sent_tokens: Mapping[str, int], costs: Mapping[str, Mapping[str, float]]
    ) -> None:
        self.points.append(Point(self._number, original_tokens, sent_tokens, costs))
        if len(self.points) >= MAX_POINTS:
            self.points = self.points[::2]
            self._stride *= 2


def draw(series: Series, file: Path) -> None:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise StoppedError("--plot needs matplotlib; install it with: pip install 'trimtab[plot]'") from error
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    points, numbers = series.points, [point.number for point in series.points]
    above.plot(numbers, [point.original_tokens for point in points], label="as the client sent it")
    for name in points[-1].sent_tokens if points else ():
        above.plot(numbers, [point.sent_tokens.get(name) for point in points], label=f"sent, {name}")
    last = points[-1].costs if points else {}
    for name, strategy in ((name, strategy) for name, costs in last.items() for strategy in costs):
        course = [point.costs[name].get(strategy, 0.0) for point in points]
        if any(course):
            below.plot(numbers, course, label=f"{_NAMES[strategy]}, {name}")
    above.set_ylabel("prompt tokens")
    below.set_xlabel("requests")
    below.set_ylabel("cost so far")
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        if axes.lines:
            axes.legend()
    try:
        figure.savefig(file)
    except OSError as error:
        raise StoppedError(f"{file}: {error.strerror}") from error


REPLACED = "; a credential was replaced in the recorded body"
MAX_PLACES = 20  # Places that are named of each kind. Chosen: as many as a reader follows up; the others are counted.
Advance = Callable[[int], None]  # is told how much of the input was read: files, or bytes


class Places(msgspec.Struct):
    """Places of the input with what is to say about them: all counted, the first MAX_PLACES named."""

    number: int = 0
    places: list[dict[str, str]] = []

    def add(self, place: str, reason: str) -> None:
        self.number += 1
        if len(self.places) < MAX_PLACES:
            self.places.append({"place": place, "reason": reason})


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
            if isinstance(figures, RecordedCall):
                sums.add_summary(figures)
            elif figures is not None:
                self.requests += 1
                upstream, model = reader.sent_to[figures.event.label]
                prices = find_listed(f"https://{upstream}", model) if upstream else None
                pricing = None if prices is None or not prices.is_in_dollars else Pricing(prices)
                sums.add(figures, None, pricing, session="", at=0.0)
                if pricing is not None and (tokens := estimate_tokens(figures)) is not None:
                    sums.book(figures.event.label, pricing, tokens)

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
        event, summary = recording.event, recording.call
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
        chosen: PricedVariant,
        session: str,
        at: float,
    ) -> None:
        sums.add(figures, compaction, chosen.pricing, session=session, at=at)
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

    def _ask(self, sums: VariantSums, chosen: PricedVariant, compaction: Compaction, session: str) -> None:
        expected = self._expected[sums.name]
        for call in expected.ask(chosen, compaction.original_plan, session):
            sums.add_summary(call, session)
        is_new = expected.stands_in(compaction.planned.plan, compaction.text, session)
        sums.figures.note(chosen.label, stand_ins=int(is_new))


def _measure(chosen: PricedVariant, compaction: Compaction, recorded: RequestFigures | None) -> RequestFigures:
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
    body = recording.received_body if compaction.body is None else compaction.body
    is_kept = recording.sent is not None and recording.sent_body is not None
    return "the body differs" if is_kept and body != recording.sent_body else ""


def _list(decisions: Sequence[Decision]) -> str:
    return ", ".join(f"{one.rule} ({one.saved_tokens})" for one in decisions) or "none"


def _read_lines(file: Path, advance: Advance) -> Iterator[tuple[str, bytes]]:
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield f"line {number}", line.rstrip(b"\r\n")
            advance(len(line))
