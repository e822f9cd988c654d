"""What became of each message: every one that is forwarded differently, and every one that trimtab made.

Law: pure. A message that is forwarded unchanged has no change, and the tokens of all changes add up to what was saved.
Messages are matched by their places in the client's request. Only those whose words a cut joins to another message are
found by their bytes, which that message names.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from rules.conversation import Media, Message, Origin, Outcome, Role, ToolCall
from rules.pipeline.plan import Plan
from rules.results.calls import OpenCalls
from rules.text.markers import INTRODUCTION
from rules.tokens.messages import MESSAGE_TOKENS, ROLE_TOKENS
from rules.tokens.sections import scale_parts
from rules.window.prune import drop_images
from rules.window.state import Cut

CUT_RULES = frozenset({"summarise", "digest"})
"""Names of the decisions that say that the part before a cut was replaced."""
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
        """Whether this is the summary, or the digest."""
        return self.fate is Fate.ADDED and INTRODUCTION in self.after

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

    paired, placed: by the index of a message of the client, its index in the planned transcript and in the forwarded
        one, if it is a message there.
    joined: by the index in the planned transcript: the forwarded message to which a message's words were joined.
    """

    def __init__(self, plan: Plan, outcome: Outcome) -> None:
        self.plan, self.outcome = plan, outcome
        self.original, self.planned = plan.original.messages, plan.conversation.messages
        self.forwarded = outcome.conversation.messages
        self.rules = tuple(dict.fromkeys(one.rule for one in outcome.decisions))
        # A cut that would have saved nothing was not carried out.
        self.cut = None if CUT_RULES.isdisjoint(self.rules) else plan.window.cut
        self.changed = [(one.rule, frozenset(at)) for one, at in zip(plan.decisions, plan.changed, strict=True)]
        self.pruned, self.without_images = frozenset(plan.window.pruned), frozenset(plan.window.without_images)
        self.paired = match_origins(plan.original.origins, plan.conversation.origins)
        self.placed = match_origins(plan.original.origins, outcome.conversation.origins)
        self.hosts = {place: index for index, place in self.placed.items()}
        self.joined = {} if self.cut is None else self._find_joined(self.cut)
        self.guests: dict[int, list[int]] = defaultdict(list)
        for at, place in self.joined.items():
            self.guests[place].append(at)

    def _find_joined(self, cut: Cut) -> dict[int, int]:
        """The kept user messages are in the summary's message; some dialects join a system message to another one."""
        stay, loose = {self.paired[index] for index in self.placed}, defaultdict[bytes, deque[int]](deque)
        for at in (cut.opening, *cut.kept, *cut.kept_systems, cut.at):
            if 0 <= at < len(self.planned) and at not in stay:
                loose[self.planned[at].raw].append(at)
        joined = {
            loose[raw].popleft(): place
            for place, message in enumerate(self.forwarded)
            for raw in message.taken_in
            if loose[raw]
        }
        return joined if cut.opening < 0 else {cut.opening: self.plan.leading} | joined

    def list_own(self) -> Iterator[Change]:
        """The changes of the client's messages."""
        answered, moved = _list_answered(self.planned), self._find_moved()
        for index, (message, origin) in enumerate(zip(self.original, self.plan.original.origins, strict=True)):
            at, final = self.paired.get(index, -1), self._find_final(index)
            is_joined = at in self.joined
            if final is not None and not is_joined and index not in moved and is_same(final, message):
                continue
            blamed = {*self._blame(at, final), *(("pairing",) if index in moved else ())}
            rules, elements = tuple(rule for rule in self.rules if rule in blamed), list_elements(origin)
            call = answered[at] if at >= 0 else None
            after_tokens = 0 if final is None else final.tokens
            yield Change(
                elements[0] if elements else OUTSIDE,
                message.role_name,
                (call.name if call else message.name or "") if message.role is Role.TOOL else "",
                _find_fate(message, final, rules),
                rules,
                message.tokens,
                self._count_joined(at) if is_joined else after_tokens,
                read_message(message),
                "" if final is None else read_message(final),
                elements,
            )

    def list_added(self) -> Iterator[Change]:
        """The messages, and the parts of messages, that trimtab made."""
        answered, places = _list_answered(self.forwarded), self._find_places_behind()
        cut_rules = tuple(rule for rule in self.rules if rule in CUT_RULES)
        for place, message in enumerate(self.forwarded):
            host = self.hosts.get(place)
            if host is not None and not self._adds_to(self.paired.get(host, -1), place):
                continue
            own = None if host is None else self._find_final(host)
            guests = [self._find_before_cut(at) for at in self.guests.get(place, ())]
            texts = _leave_out(message.texts, [one for one in (own, *guests) if one is not None])
            if not texts:
                continue
            tokens = message.tokens - (0 if own is None else own.tokens)
            tokens -= sum(map(self._count_joined, self.guests.get(place, ())))
            is_result, call = message.role is Role.TOOL, answered[place]
            rules, tool = (("pairing",), call.name if call else "") if is_result else (cut_rules, "")
            yield Change(places[place], message.role_name, tool, Fate.ADDED, rules, 0, tokens, "", "\n".join(texts))

    def _find_final(self, index: int) -> Message | None:
        """A message of the client as it is forwarded, without what was joined to it; None if it is not."""
        at, place = self.paired.get(index), self.placed.get(index)
        if at is None:
            return None
        if at in self.joined or (place is not None and self._adds_to(at, place)):
            return self._find_before_cut(at)
        return None if place is None else self.forwarded[place]

    def _find_before_cut(self, at: int) -> Message:
        """A message of the planned transcript as it was when the part before the cut was replaced."""
        return drop_images(self.planned[at]) if at in self.without_images else self.planned[at]

    def _adds_to(self, at: int, place: int) -> bool:
        """Whether a forwarded message of the client may have more than its own words."""
        return self.cut is not None and ((at == self.plan.window.task and at < self.cut.at) or place in self.guests)

    def _count_joined(self, at: int) -> int:
        """What the words of a message cost in the message to which they were joined."""
        return max(self._find_before_cut(at).tokens - FRAME_TOKENS, 0)

    def _find_moved(self) -> set[int]:
        """The results that were moved forward to their calls, by their indexes in the client's transcript."""
        moved, earliest = set[int](), len(self.original)
        for index in reversed(self.paired):
            if index > earliest and self.original[index].role is Role.TOOL:
                moved.add(index)
            earliest = min(earliest, index)
        return moved

    def _find_places_behind(self) -> list[int]:
        """For each forwarded message: the first element of the client's next message behind it, or their number."""
        origins, places = self.plan.original.origins, list[int]()
        behind = max((origin.stop for origin in origins if origin is not None), default=0)
        for place in reversed(range(len(self.forwarded))):
            places.append(behind)
            if place in self.hosts:
                behind = list_elements(origins[self.hosts[place]])[0]
        return places[::-1]

    def _blame(self, at: int, final: Message | None) -> Iterator[str]:
        """The rules that changed a message; `at`: its index in the planned transcript, -1 if it is not there."""
        if at < 0:
            yield "pairing"
            return
        yield from (rule for rule, places in self.changed if at in places)
        if final is None or at in self.joined:
            yield from CUT_RULES
        if final is None:
            return
        short, texts = self.planned[at], final.texts
        for pin in self.plan.pins:
            if pin.at == at and _ends_with(texts, pin.line) and not _ends_with(short.texts, pin.line):
                yield "pin"
                texts = (*texts[:-1], texts[-1].removesuffix(f"\n{pin.line}"))
        if short.role is Role.TOOL and texts != short.texts:
            yield "prune" if at in self.pruned else "dedupe"
        if final.media and final.media != short.media:
            yield "images"


def match_origins(before: Sequence[Origin | None], after: Sequence[Origin | None]) -> dict[int, int]:
    """The index in `after` of each message of `before` that is still a message there, in the order of `after`.

    System messages outside the request's list share one position. They stay in their order.
    """
    waiting = defaultdict[Origin | None, deque[int]](deque)
    for index, origin in enumerate(before):
        waiting[origin].append(index)
    left = ((waiting[origin], place) for place, origin in enumerate(after) if origin is not None)
    return {indexes.popleft(): place for indexes, place in left if indexes}


def _list_answered(messages: Sequence[Message]) -> list[ToolCall | None]:
    """For each message, the call that it answers."""
    calls = OpenCalls()
    return [calls.answer(message) for message in messages]


def _find_fate(message: Message, final: Message | None, rules: Sequence[str]) -> Fate:
    if final is None:
        return Fate.REMOVED
    if is_same(final, message):
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


def _ends_with(texts: Sequence[str], line: str) -> bool:
    return bool(texts) and texts[-1].endswith(line)


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
