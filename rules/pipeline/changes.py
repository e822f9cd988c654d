"""What became of each message: every one that is forwarded differently, and every one that trimtab made.

Law: pure. A message that is forwarded unchanged has no change, and the tokens of all changes add up to what was saved.
Messages are matched by their places in the client's request. Only those whose words a cut joins to another message are
found by their bytes, which that message names.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import chain
from operator import itemgetter

from trimtab.rules.conversation import Conversation, Media, Message, Origin, Outcome, Role, ToolCall
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.pipeline.shortening import ARGUMENTS
from trimtab.rules.results.calls import OpenCalls
from trimtab.rules.text.markers import SUMMARY_START
from trimtab.rules.tokens.messages import MESSAGE_TOKENS, ROLE_TOKENS
from trimtab.rules.tokens.sections import scale_parts
from trimtab.rules.window.prune import drop_images
from trimtab.rules.window.state import Cut

CUT_RULES = frozenset({"summarise", "digest"})
"""Names of the decisions that say that the part before a cut was replaced."""
NOTE = "[the provider's own note]"
"""Stands for what such a note says, in `Change.after`."""
FRAME_TOKENS = MESSAGE_TOKENS + ROLE_TOKENS
"""What a message costs less if its words stand in another message."""
OUTSIDE = -1
"""The index of a message that is not in the request's list: the member `system` of a Messages request, or the member
`instructions` of a Responses request."""


class Fate(StrEnum):
    """What became of a message of the client's transcript, or that it is one of trimtab's own.

    SHORTENED: some of its text or images is gone or replaced. PRUNED: a placeholder stands for its result.
    REMOVED: it is not forwarded; a summary or digest may tell what it said. ADDED: trimtab made it.
    MOVED: its words are forwarded unchanged, but at another place: in the message that holds the summary, in a
    neighbouring system message, or right after the call that it answers.
    """

    SHORTENED = "shortened"
    PRUNED = "pruned"
    REMOVED = "removed"
    ADDED = "added"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one message. Messages that are forwarded unchanged have none.

    at: the index, from 0, of its first element in the request's own list (`messages` or `input`); OUTSIDE if it is not
        in the list. Several results in one element have the same index. For an added message, the index of the element
        before which it stands.
    role: on the wire. tool: the name of the tool whose result it is; empty if it is no result.
    rules: the names of the rules that changed it, as in decisions, in order.
    tokens_before, tokens_after: in the model's own tokens; 0 for a message that is not there. They are rounded so that
        all changes of a story add up to what was saved, to the token. So they may be one off.
    before, after: its text as the client sent it, and as it is forwarded, with its calls and a line for each image;
        empty if it is not there.
    elements: all elements of the request's list in which it stood; none for an added message.
    """

    at: int
    role: str
    tool: str
    fate: Fate
    rules: tuple[str, ...]
    tokens_before: int
    tokens_after: int
    before: str = field(default="", repr=False)
    after: str = field(default="", repr=False)
    elements: tuple[int, ...] = ()

    @property
    def is_summary(self) -> bool:
        """Whether this is the summary, the digest, or the provider's own note."""
        return self.fate is Fate.ADDED and (SUMMARY_START in self.after or self.is_note)

    @property
    def is_note(self) -> bool:
        return self.fate is Fate.ADDED and self.after == NOTE

    def describe(self, *, with_texts: bool = False) -> dict[str, object]:
        """The fields by their names, for JSON; without `elements`.

        with_texts: `before` and `after`, too, with `?` for each lone surrogate, which UTF-8 cannot hold.
        """
        described: dict[str, object] = asdict(self)
        del described["before"], described["after"], described["elements"]
        if not with_texts:
            return described
        texts = {"before": self.before, "after": self.after}
        return described | {name: text.encode("utf-8", "replace").decode() for name, text in texts.items()}


def list_elements(origin: Origin | None) -> tuple[int, ...]:
    """The indexes of a message's elements in the request's own list; OUTSIDE if it is not in the list."""
    return () if origin is None else tuple(range(origin.start, origin.stop)) or (OUTSIDE,)


def trace_changes(plan: Plan, outcome: Outcome, ratio: float) -> tuple[Change, ...]:
    """The changes, ascending; an added message before the one that it stands before.

    ratio: the model's own tokens for each of trimtab's.
    """
    if outcome.conversation is plan.original:
        return ()
    traces = _Traces(plan, outcome)
    changes = [*traces.list_own(), *traces.list_added()]
    changes.sort(key=lambda one: (one.at, one.fate is not Fate.ADDED))
    _settle(changes, plan.original.tokens - outcome.conversation.tokens)
    return tuple(_scale(changes, plan.original.tokens, ratio))


class _Traces:
    """The client's transcript beside the planned one, to which all indexes of the plan refer, and the forwarded one.

    paired: by the index of a message of the client, its index in the planned transcript; a dropped one is not there.
        The first of results that became a message of the user is in its place.
    written: the indexes of all of those results.
    made: the messages of the planned transcript that pairing has made, by their identity.
    carried: by the index of a forwarded message, the planned messages whose words it has.
    joined: those of them whose words were joined to another message.
    finals: by the index of a planned message, the message as it is forwarded, without what was joined to it, and what
        it costs there; a removed one is not there.
    """

    def __init__(self, plan: Plan, outcome: Outcome) -> None:
        self.plan, self.forwarded = plan, outcome.conversation
        self.rules = tuple(dict.fromkeys(one.rule for one in outcome.decisions))
        self.changed = [(one.rule, frozenset(at)) for one, at in zip(plan.decisions, plan.changed, strict=True)]
        self.pins, self.pruned = {pin.at: pin.line for pin in plan.pins}, frozenset(plan.window.pruned)
        paired = match_origins(plan.original.origins, plan.conversation.origins)
        written = find_written(plan)
        self.made = {id(one) for one, origin in _place(plan.conversation) if origin is None}
        first = {min(results): at for at, results in written.items()}
        self.written = frozenset(chain.from_iterable(written.values()))
        self.paired = dict(sorted({**paired, **first}.items(), key=itemgetter(1)))
        placed = match_origins(plan.conversation.origins, self.forwarded.origins) | self._match_made(written)
        # A cut that would have saved nothing was not carried out.
        cut = None if CUT_RULES.isdisjoint(self.rules) else plan.window.cut
        self.joined = {} if cut is None else self._find_joined(cut, placed)
        self.carried: dict[int, list[int]] = defaultdict(list)
        for at, place in chain(placed.items(), self.joined.items()):
            self.carried[place].append(at)
        self.finals = dict(self._find_finals(cut))

    def _match_made(self, written: Mapping[int, object]) -> dict[int, int]:
        """Where messages are forwarded that were made of results without a call. A cut may have removed some."""
        planned = self.plan.conversation.messages
        waiting = defaultdict[tuple[bytes, ...], deque[int]](deque)
        for at in written:
            waiting[planned[at].taken_in].append(at)
        made = ((one, place) for place, one in enumerate(self.forwarded.messages) if one.is_written)
        return {waiting[one.taken_in].pop(): place for one, place in reversed([*made]) if waiting[one.taken_in]}

    def _find_joined(self, cut: Cut, placed: Mapping[int, int]) -> dict[int, int]:
        """The kept user messages are in the summary's message; some dialects join a system message to another one."""
        messages, loose = self.plan.conversation.messages, defaultdict[bytes, deque[int]](deque)
        for at in (cut.opening, *cut.kept, *cut.kept_systems, cut.at):
            if 0 <= at < len(messages) and at not in placed:
                loose[messages[at].raw].append(at)
        taken = ((loose[raw], place) for place, one in enumerate(self.forwarded.messages) for raw in one.taken_in)
        joined = {indexes.popleft(): place for indexes, place in taken if indexes}
        return joined if cut.opening < 0 else {cut.opening: self.plan.leading} | joined

    def _find_finals(self, cut: Cut | None) -> Iterator[tuple[int, tuple[Message, int]]]:
        task, without_images = self.plan.window.task, frozenset(self.plan.window.without_images)
        for place, indexes in self.carried.items():
            for at in indexes:
                final, planned = self.forwarded.messages[place], self.plan.conversation.messages[at]
                is_task = cut is not None and at == task and at < cut.at
                has_more = cut is not None and at >= cut.at and len(final.texts) > len(planned.texts)
                if at in self.joined or len(indexes) > 1 or is_task or has_more:
                    # It may have more than the words of this one: those from before the cut, or the summary.
                    final = drop_images(planned) if at in without_images else planned
                yield at, (final, max(final.tokens - FRAME_TOKENS, 0) if at in self.joined else final.tokens)

    def list_own(self) -> Iterator[Change]:
        original, moved, answered = self.plan.original, self._find_moved(), _list_answered(self.plan.conversation)
        for index, (message, origin) in enumerate(zip(original.messages, original.origins, strict=True)):
            at = self.paired.get(index, -1)
            final, after_tokens = self.finals.get(at, (None, 0))
            is_repaired = at < 0 or index in moved or index in self.written
            if final is not None and at not in self.joined and not is_repaired and is_same(final, message):
                continue
            blamed = {*(self._blame(at, final) if at >= 0 else ()), *(("pairing",) if is_repaired else ())}
            rules, elements = tuple(rule for rule in self.rules if rule in blamed), list_elements(origin)
            call = answered[at]
            yield Change(
                elements[0] if elements else OUTSIDE,
                message.role_name,
                (call.name if call else message.name or "") if message.role is Role.TOOL else "",
                _find_fate(message, final, rules),
                rules,
                message.tokens,
                after_tokens,
                read_message(message),
                "" if final is None else read_message(final),
                elements,
            )

    def list_added(self) -> Iterator[Change]:
        answered, places = _list_answered(self.forwarded), self._find_places_behind()
        cut_rules = tuple(rule for rule in self.rules if rule in CUT_RULES)
        for place, message in enumerate(self.forwarded.messages):
            theirs = [self.finals[at] for at in self.carried.get(place, ())]
            is_note = message.keeps_before and self.forwarded.origins[place] is None
            texts = [NOTE] if is_note else _leave_out(message.texts, [final for final, _ in theirs])
            if texts:
                tokens = message.tokens - sum(tokens for _, tokens in theirs)
                is_paired, call = id(message) in self.made, answered[place]
                rules, tool = (("pairing",), call.name if call else "") if is_paired else (cut_rules, "")
                yield Change(places[place], message.role_name, tool, Fate.ADDED, rules, 0, tokens, "", "\n".join(texts))

    def _find_moved(self) -> set[int]:
        messages = self.plan.original.messages
        moved, earliest = set[int](), len(messages)
        for index in reversed(self.paired):
            if index > earliest and messages[index].role is Role.TOOL:
                moved.add(index)
            earliest = min(earliest, index)
        return moved

    def _find_places_behind(self) -> list[int]:
        """For each forwarded message: the first element of the client's next message behind it, or their number."""
        behind, places = max((one.stop for one in self.plan.original.origins if one is not None), default=0), []
        for origin in reversed(self.forwarded.origins):
            places.append(behind)
            behind = behind if origin is None else list_elements(origin)[0]
        return places[::-1]

    def _blame(self, at: int, final: Message | None) -> Iterator[str]:
        yield from (rule for rule, places in self.changed if at in places)
        if final is None or at in self.joined:
            yield from CUT_RULES
        if final is None:
            return
        short, texts, pin = self.plan.conversation.messages[at], final.texts, self.pins.get(at)
        if pin is not None and texts and texts[-1].endswith(pin) and not short.texts[-1].endswith(pin):
            yield "pin"
            texts = (*texts[:-1], texts[-1].removesuffix(f"\n{pin}"))
        if short.role is Role.TOOL and texts != short.texts:
            yield "prune" if at in self.pruned else "dedupe"
        if final.media and final.media != short.media:
            yield "images"
        if final.tool_calls != short.tool_calls:
            yield ARGUMENTS


def find_written(plan: Plan) -> dict[int, list[int]]:
    """By the index of a planned message that was made of results without a call, the indexes of these results."""
    paired = match_origins(plan.original.origins, plan.conversation.origins)
    waiting = defaultdict[bytes, deque[int]](deque)
    for index, message in enumerate(plan.original.messages):
        if index not in paired:
            waiting[message.raw].append(index)
    made = [
        (at, one) for at, (one, origin) in enumerate(_place(plan.conversation)) if origin is None and one.is_written
    ]
    return {at: [waiting[raw].popleft() for raw in one.taken_in] for at, one in made}


def _place(conversation: Conversation) -> Iterator[tuple[Message, Origin | None]]:
    return zip(conversation.messages, conversation.origins, strict=True)


def match_origins(before: Sequence[Origin | None], after: Sequence[Origin | None]) -> dict[int, int]:
    """The index in `after` of each message of `before` that is still a message there, in the order of `after`.

    System messages outside the request's list share one position. They stay in their order.
    """
    waiting = defaultdict[Origin | None, deque[int]](deque)
    for index, origin in enumerate(before):
        waiting[origin].append(index)
    left = ((waiting[origin], place) for place, origin in enumerate(after) if origin is not None)
    return {indexes.popleft(): place for indexes, place in left if indexes}


def _list_answered(conversation: Conversation) -> list[ToolCall | None]:
    """The calls that the messages answer; at index -1, which stands for no message, none."""
    return [*map(OpenCalls().answer, conversation.messages), None]


def _find_fate(message: Message, final: Message | None, rules: Sequence[str]) -> Fate:
    if final is None:
        return Fate.REMOVED
    if is_same(final, message) or rules == ("pairing",):
        return Fate.MOVED
    return Fate.PRUNED if "prune" in rules else Fate.SHORTENED


def _leave_out(texts: Sequence[str], messages: Sequence[Message]) -> list[str]:
    """The texts without those of messages that were joined, and without the lines that stand for their images."""
    lines = (part.line for message in messages for part in message.media if part.is_removed)
    theirs, left = Counter([*(text for message in messages for text in message.texts), *lines]), []
    for text in texts:
        if theirs[text]:
            theirs[text] -= 1
        else:
            left.append(text)
    return left


def _settle(changes: list[Change], saved_tokens: int) -> None:
    """Give the summary what joining messages has cost or saved, so that the sum is right to the token.

    A message that is joined to another loses its frame, and its name if it has one. The summary never gets less than
    nothing: then the joined messages give it up.
    """
    rest = saved_tokens - sum(one.tokens_before - one.tokens_after for one in changes)
    order = [index for index, one in enumerate(changes) if one.is_summary]
    order += [index for index, one in enumerate(changes) if one.fate is Fate.MOVED and one.tokens_after]
    for index in order:
        tokens = max(changes[index].tokens_after - rest, 0)
        rest -= changes[index].tokens_after - tokens
        changes[index] = replace(changes[index], tokens_after=tokens)


def _scale(changes: Sequence[Change], original_tokens: int, ratio: float) -> Sequence[Change]:
    """The changes in the model's own tokens. They add up to what was saved, scaled and rounded."""
    if ratio == 1:
        return changes
    before, after = [one.tokens_before for one in changes], [one.tokens_after for one in changes]
    unchanged = original_tokens - sum(before)
    # What is unchanged comes first in both, so it is rounded alike, and the sums are those of the two transcripts.
    _, *before = scale_parts((unchanged, *before), ratio)
    _, *after = scale_parts((unchanged, *after), ratio)
    sizes = zip(changes, before, after, strict=True)
    return [replace(one, tokens_before=old, tokens_after=new) for one, old, new in sizes]


def read_message(message: Message) -> str:
    """A message for a person: its texts, a line for each image or file, and a line for each tool call."""
    lines = [*message.as_said().texts, *map(_name_part, message.media)]
    return "\n".join([*lines, *(f"{call.name} {call.arguments}" for call in message.tool_calls)])


def _name_part(part: Media) -> str:
    return part.line if part.is_removed else f"({'image' if part.line else 'attachment'} of {part.tokens} tokens)"


def is_same(one: Message, other: Message) -> bool:
    """Whether two messages with one origin say the same. They may be different objects, of different requests."""
    return one is other or (one.texts, one.media, one.tokens) == (other.texts, other.media, other.tokens)
