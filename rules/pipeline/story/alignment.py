"""Where each message of the client's transcript went: the two ends of the pipeline, laid side by side.

Law: messages are matched by their positions in the client's request, never by what they say.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from rules.conversation import Conversation, Message, Origin, Role, count_leading
from rules.pipeline.plan import Plan
from rules.text.markers import OPENING_TITLE
from rules.tokens.messages import MESSAGE_TOKENS, ROLE_TOKENS
from rules.window.images import drop_images
from rules.window.state import Cut

CUT_RULES = frozenset({"summarise", "digest"})
"""Names of the decisions that say that the part before a cut was replaced."""
FRAME_TOKENS = MESSAGE_TOKENS + ROLE_TOKENS
"""What a message costs less if its words stand in another message."""


def match_origins(before: Conversation, after: Conversation) -> dict[int, int]:
    """The index in `after` of each message of `before` that is still a message there.

    System messages outside the request's list share one position. They stay in their order.
    """
    waiting: defaultdict[Origin, deque[int]] = defaultdict(deque)
    for index, origin in enumerate(before.origins):
        if origin is not None:
            waiting[origin].append(index)
    found: dict[int, int] = {}
    for index, origin in enumerate(after.origins):
        if origin is not None and waiting.get(origin):
            found[waiting[origin].popleft()] = index
    return found


@dataclass(frozen=True)
class Alignment:
    """The client's transcript beside the paired one and the forwarded one.

    paired: by the index of a message of the client, its index in `plan.conversation`, which all indexes of the window
        refer to. A dropped message is not there.
    forwarded: the same for its index in `conversation`. A message whose words were joined to another is not there.
    """

    plan: Plan
    conversation: Conversation
    cut: Cut | None
    paired: Mapping[int, int]
    forwarded: Mapping[int, int]

    @cached_property
    def joined(self) -> Mapping[int, int]:
        """By the index in `plan.conversation`: the forwarded message to which a message's words were joined."""
        return {} if self.cut is None else {**dict(self._find_kept(self.cut)), **dict(self._find_systems(self.cut))}

    @cached_property
    def hosts(self) -> Mapping[int, int]:
        """The index in the client's transcript of each forwarded message that stems from one."""
        return {place: index for index, place in self.forwarded.items()}

    @cached_property
    def guests(self) -> Mapping[int, tuple[int, ...]]:
        """By forwarded message: the messages whose words were joined to it, by their indexes in `plan.conversation`."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for at, place in self.joined.items():
            found[place].append(at)
        return {place: tuple(sorted(each)) for place, each in found.items()}

    @cached_property
    def moved(self) -> frozenset[int]:
        """The results that were moved forward to their calls, by their indexes in the client's transcript."""
        order = sorted(self.paired, key=self.paired.__getitem__)
        moved, earliest = [], len(self.plan.original.messages)
        for index in reversed(order):
            if index > earliest and self.plan.original.messages[index].role is Role.TOOL:
                moved.append(index)
            earliest = min(earliest, index)
        return frozenset(moved)

    @cached_property
    def pruned(self) -> frozenset[int]:
        """The messages of `plan.conversation` whose results are pruned."""
        return frozenset(self.plan.window.pruned)

    @cached_property
    def _without_images(self) -> frozenset[int]:
        return frozenset(self.plan.window.without_images)

    def before_cut(self, at: int) -> Message:
        """A message of `plan.conversation` as it was when the part before the cut was replaced."""
        message = self.plan.conversation.messages[at]
        return drop_images(message) if at in self._without_images else message

    def find_final(self, index: int) -> Message | None:
        """A message of the client as it is forwarded, without what was joined to it; None if it is not."""
        at, place = self.paired.get(index), self.forwarded.get(index)
        if at is None:
            return None
        if at in self.joined or (place is not None and self._is_host(at, place)):
            return self.before_cut(at)
        return None if place is None else self.conversation.messages[place]

    def find_added(self, place: int) -> tuple[str, ...]:
        """The texts of a forwarded message that are trimtab's own."""
        message, host = self.conversation.messages[place], self.hosts.get(place)
        own = None if host is None else self.find_final(host)
        texts = message.texts
        if own is not None:
            texts = texts[len(own.texts) :]
        words: list[str] = []
        for at in self.guests.get(place, ()):
            guest = self.before_cut(at)
            if self.cut is not None and at == self.cut.opening:
                texts = (*texts[:1], *texts[1 + len(guest.texts) :])
            else:
                words += [*guest.texts, *(part.line for part in guest.media if part.is_removed)]
        return texts[: len(texts) - len(words)]

    def count_added(self, place: int) -> int:
        """The tokens of a forwarded message that are trimtab's own."""
        host = self.hosts.get(place)
        own = None if host is None else self.find_final(host)
        tokens = self.conversation.messages[place].tokens - (0 if own is None else own.tokens)
        return tokens - sum(self.count_joined(at) for at in self.guests.get(place, ()))

    def count_joined(self, at: int) -> int:
        """What the words of a message cost in the message to which they were joined."""
        return max(self.before_cut(at).tokens - FRAME_TOKENS, 0)

    def adds_to(self, place: int) -> bool:
        """Whether a forwarded message of the client may have more than its own words."""
        host = self.hosts.get(place)
        return host is not None and self._is_host(self.paired.get(host, -1), place)

    def _is_host(self, at: int, place: int) -> bool:
        if self.cut is None:
            return False
        return (at == self.plan.window.task and at < self.cut.at) or place in self.guests

    def _find_memo(self) -> Iterator[int]:
        """The forwarded messages for the task statement, the summary and the kept messages."""
        task = self.plan.window.task
        for place in range(count_leading(self.plan.conversation.messages), len(self.conversation.messages)):
            host = self.hosts.get(place)
            if host is not None and self.paired.get(host) != task:
                return
            yield place

    def _find_kept(self, cut: Cut) -> Iterator[tuple[int, int]]:
        messages, memo = self.plan.conversation.messages, list(self._find_memo())
        raws = {messages[at].raw for at in cut.kept}
        holder = next((place for place in memo if raws <= set(self.conversation.messages[place].taken_in)), None)
        if holder is not None:
            yield from ((at, holder) for at in cut.kept)
        if cut.opening >= 0 and memo and OPENING_TITLE in self.conversation.messages[memo[0]].texts:
            yield cut.opening, memo[0]

    def _find_systems(self, cut: Cut) -> Iterator[tuple[int, int]]:
        """System messages that were joined to the one before them, as some dialects need it."""
        messages, placed = self.plan.conversation.messages, {self.paired[index] for index in self.forwarded}
        loose = [at for at in (*cut.kept_systems, cut.at) if at < len(messages) and at not in placed]
        for place, message in enumerate(self.conversation.messages):
            if message.role is not Role.SYSTEM:
                continue
            for raw in message.taken_in:
                at = next((at for at in loose if messages[at].role is Role.SYSTEM and messages[at].raw == raw), None)
                if at is not None:
                    loose.remove(at)
                    yield at, place


def align(plan: Plan, conversation: Conversation, rules: frozenset[str]) -> Alignment:
    """Lay the client's transcript beside the forwarded one. `rules`: names of the decisions."""
    # A cut that would have saved nothing was not carried out.
    cut = plan.window.cut if rules & CUT_RULES else None
    paired = match_origins(plan.original, plan.conversation)
    return Alignment(plan, conversation, cut, paired, match_origins(plan.original, conversation))
