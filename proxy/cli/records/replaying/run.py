"""Replays an input: each request once, in its order, on one or two sides.

Law: one request at a time. What is kept of it is figures, and caches of bounded size.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from proxy.account.recordings.format import BadRecordingError, Circumstances, Recording
from proxy.account.recordings.reading import RecordingFile
from proxy.cli.records.replaying.arms import Paid, slide_window
from proxy.cli.records.replaying.carry_out import Carried, carry_out, read, remember
from proxy.cli.records.replaying.compare import find_difference
from proxy.cli.records.replaying.expected import Expected
from proxy.cli.records.replaying.inputs.bodies import Sessions, split_turns
from proxy.cli.records.replaying.inputs.log_lines import LogReader, estimate_tokens
from proxy.cli.records.replaying.needed import Needed
from proxy.cli.records.replaying.series import Series
from proxy.cli.records.replaying.side import Side
from proxy.cli.records.replaying.told import (
    SUCCESS_STATUS,
    TOO_LONG,
    UPSTREAM_REFUSES,
    Told,
    ToldSummary,
    tell_recorded,
    tell_recorded_summary,
)
from proxy.cli.records.replaying.ways import Chosen, ConfiguredWays, RecordedWays
from proxy.compaction.pool import Compactors
from proxy.state.catalogue.prices import find_listed
from proxy.wire.codec import Request, UndecodableError
from rules.conversation import Conversation

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
        """Add a place."""
        self.number += 1
        if len(self.named) < MAX_PLACES:
            self.named.append((place, reason))


@dataclass(slots=True)
class Replay:
    """A replay under way, and its result.

    configured: the configurations to replay with, by the names of their sides. Recordings without one, or with one,
    are also replayed as they were recorded.
    unreadable: what is no request. differing: requests that were recorded otherwise. not_replayed: requests of which
    only the recorded figures are known.
    needed: the identifiers that the next answers need, by side and for a sliding window; None if nobody asks.
    """

    compactors: Compactors
    sides: list[Side]
    configured: dict[str, ConfiguredWays] = field(default_factory=dict)
    requests: int = 0
    first_at: float | None = None
    last_at: float | None = None
    unreadable: Places = field(default_factory=Places)
    differing: Places = field(default_factory=Places)
    not_replayed: int = 0
    redacted: int = 0
    series: Series = field(default_factory=Series)
    needed: Needed | None = None
    _recorded: RecordedWays = field(init=False)
    _sessions: Sessions = field(default_factory=Sessions)
    _expected: dict[str, Expected] = field(init=False)
    _sent: dict[str, int] = field(default_factory=dict)
    _forwarded: dict[str, Conversation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._recorded = RecordedWays(self.compactors)
        self._expected = {name: Expected(self._recorded.texts) for name in self.configured}

    def read_recordings(self, files: list[RecordingFile], advance: Advance) -> None:
        """Replay the recordings of a folder."""
        for file in files:
            try:
                recording = file.read()
            except BadRecordingError as error:
                self.unreadable.add(file.path.name, str(error))
            else:
                self._take_recording(recording)
            advance(1)

    def read_log(self, file: Path, advance: Advance) -> None:
        """Add up the requests of a log."""
        reader, side = LogReader(), self.sides[0]
        for place, line in _read_lines(file, advance):
            try:
                told = reader.read(line)
            except ValueError as error:
                self.unreadable.add(place, str(error))
                continue
            if isinstance(told, ToldSummary):
                side.add_summary(told)
            elif told is not None:
                self.requests += 1
                self._book_line(side, told, *reader.sent_to[told.label])

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
        for side, ways in zip(self.sides, self.configured.values(), strict=True):
            chosen = ways.choose(request)
            carried = carry_out(self.compactors, request, chosen.way)
            session = session or self._sessions.name(request.model, carried.planned.plan.hashes, place)
            self._add(side, self._tell(chosen, carried, None), carried, chosen, session, 0.0)
        remember(self.compactors, request)

    def _take_recording(self, recording: Recording) -> None:
        event, summary = recording.event, tell_recorded_summary(recording)
        if summary is not None:
            if self.sides[0].name == "recorded":
                self.sides[0].add_summary(summary)
            return
        self.requests += 1
        self.first_at = event.at if self.first_at is None else self.first_at
        self.last_at = event.at
        told = tell_recorded(recording)
        try:
            found = None if told.original is None else self._recorded.read(recording)
            if found is None:
                self.not_replayed += told.original is not None
                for side in self.sides:
                    side.add(told, None, None, session=event.session, at=event.at)
                return
            self.redacted += recording.is_redacted
            self._replay_recording(recording, *found, told)
            remember(self.compactors, found[0])
        except (UndecodableError, ValueError):  # ValueError: values that no trimtab has written
            self.differing.add(recording.id, "its body can no longer be read")

    def _replay_recording(
        self, recording: Recording, request: Request, circumstances: Circumstances, told: Told
    ) -> None:
        event = recording.event
        for side in self.sides:
            ways = self.configured.get(side.name)
            if ways is None:
                chosen, carried = self._recorded.carry_out(recording, request, circumstances)
                difference = find_difference(recording, carried)
                if difference and not recording.is_redacted:
                    self.differing.add(recording.id, difference)
                self._add(side, _tell_again(told, carried), carried, chosen, event.session, event.at)
                continue
            chosen = ways.choose(request, recording)
            choose_text = self._expected[side.name].choose_text(chosen, event.session)
            carried = carry_out(self.compactors, request, chosen.way, choose_text)
            self._add(side, self._tell(chosen, carried, told), carried, chosen, event.session, event.at)

    def _add(self, side: Side, told: Told, carried: Carried, chosen: Chosen, session: str, at: float) -> None:
        side.add(told, carried, chosen.paid, session=session, at=at)
        if side.name in self.configured:
            self._ask(side, chosen, carried, session)
        self._sent[side.name] = told.sent_tokens
        if self.needed is not None:
            self._note_needed(self.needed, side, told, carried, session)
        if side is self.sides[-1] and self.series.begin():
            costs = {each.name: each.sum_costs() for each in self.sides}
            self.series.add(told.original_tokens, dict(self._sent), costs)

    def _note_needed(self, needed: Needed, side: Side, told: Told, carried: Carried, session: str) -> None:
        original = carried.planned.original
        if told.sent is not None:
            sent = carried.compacted.forwarded if carried.way.mode == "enforce" else original
            self._forwarded[side.name] = sent
        if side is self.sides[-1]:
            self._forwarded["sliding"] = slide_window(original, carried.planned.plan.limit)
            needed.add(f"{session} {carried.request.model}", original, self._forwarded)
            self._forwarded = {}

    def _tell(self, chosen: Chosen, carried: Carried, told: Told | None) -> Told:
        """What a request would have told with a configuration. told: what was recorded of it."""
        compacted, is_enforced = carried.compacted, chosen.way.mode == "enforce"
        was_sent = told is None or told.sent is not None or told.error == TOO_LONG
        sent = compacted.sent_sections if is_enforced else compacted.original_sections
        made = Told(
            label=chosen.label,
            endpoint=carried.request.codec.name,
            status=400 if carried.is_refused else SUCCESS_STATUS,
            outcome=carried.outcome,
            original=compacted.original_sections,
            sent=sent if was_sent and not carried.is_refused else None,
            limit_tokens=compacted.limit_tokens,
            decisions=compacted.decisions if is_enforced and was_sent and not carried.is_refused else (),
            error=TOO_LONG if carried.is_refused else "",
        )
        if told is None:
            return made
        return replace(made, completion_tokens=told.completion_tokens, completion_source=told.completion_source)

    def _ask(self, side: Side, chosen: Chosen, carried: Carried, session: str) -> None:
        """Count the summaries that a model would be asked for, and the digests that stand in for them."""
        if chosen.way.mode == "enforce":
            expected = self._expected[side.name]
            for call in expected.ask(chosen, carried.original_plan, session):
                side.add_summary(call, session)
            is_new = expected.stands_in(carried.planned.plan, carried.text, session)
            side.figures.of(chosen.label).stand_ins += is_new

    def _book_line(self, side: Side, told: Told, upstream: str, model: str) -> None:
        prices = find_listed(f"https://{upstream}", model) if upstream else None
        paid = None if prices is None or not prices.is_in_dollars else Paid(prices)
        tokens = estimate_tokens(told)
        side.add(told, None, paid, session="", at=0.0)
        if paid is not None and tokens is not None:
            side.book(told.label, paid, tokens)


def _tell_again(told: Told, carried: Carried) -> Told:
    """What was recorded of a request, with the figures of its plan as it was made again."""
    compacted, is_enforced = carried.compacted, carried.way.mode == "enforce"
    sent = compacted.sent_sections if is_enforced else compacted.original_sections
    counts = told.sent is not None and is_enforced and told.retry not in UPSTREAM_REFUSES
    return replace(
        told,
        original=compacted.original_sections,
        sent=sent if told.sent is not None else None,
        limit_tokens=compacted.limit_tokens,
        decisions=compacted.decisions if counts else (),
    )


def _read_lines(file: Path, advance: Advance) -> Iterator[tuple[str, bytes]]:
    """The lines of a file that are not empty, each with its name."""
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield f"line {number}", line.rstrip(b"\r\n")
            advance(len(line))
