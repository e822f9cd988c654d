"""The state of a transcript, kept for the request that continues it.

Law: it saves time and never changes a result. A state is used only for a transcript that begins with exactly the
messages it has seen, with the same counter and an equal policy. Leading system and developer messages may differ: only
the room depends on them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Protocol

import msgspec

from trimtab.rules.conversation import Conversation, Message, Outcome, Role, count_leading, ends_with_prefill
from trimtab.rules.pipeline.appended import Pin, Pinned, Pins, Recalls, may_ask
from trimtab.rules.pipeline.plan import Plan, StateKey
from trimtab.rules.pipeline.shortening import LongArguments, LongUsers, Memory, fit_head
from trimtab.rules.policy import Limits, OnExceeded, OverflowStrategy, Policy, name_policy
from trimtab.rules.prefix import hash_prefixes
from trimtab.rules.results.dedupe import View
from trimtab.rules.results.excerpt import TRUNCATE, LongMessages
from trimtab.rules.results.pairing import Pairing
from trimtab.rules.results.tidy import TIDY
from trimtab.rules.results.work import OBJECT_BYTES, Edits, Work
from trimtab.rules.summary.anchors import Anchors
from trimtab.rules.summary.request import Summary, SummaryRequest, request_summary
from trimtab.rules.summary.splice import Spliced
from trimtab.rules.window.cut_decision import NO_TOKENS, Fold
from trimtab.rules.window.prune import Pruned
from trimtab.rules.window.room import Room
from trimtab.rules.window.state import NOT_COLD, ColdCut, Cut, Window

MAX_GROWTH = 64
"""A transcript that grew by more messages since its last request is worked through from the start. Chosen: far more
than one turn adds. The search costs one lookup for each message."""
KEY_MESSAGES = 3
"""Number of newest messages that name a state. Chosen: one is enough for most sessions. But sessions of one script that
run side by side often have the same text at the same place ("Go on.") and would take each other's states."""
HASH_BYTES = 120
"""Memory of one message: its hash as an object of 32 bytes in a list, and its entry in a plan. An
estimate for CPython, rounded up."""
PRUNING = frozenset({OverflowStrategy.AUTO_COMPACT, OverflowStrategy.PRUNE})
PREFILL_SHARE = 64
"""The beginning of an answer that is at most the limit divided by this changes no decision. Chosen: clients write some
words; more than that has to fit."""
NO_COLD: Mapping[bytes, ColdCut] = MappingProxyType({})
NO_PINS: Mapping[int, Pin] = MappingProxyType({})

_tell_digest = attrgetter("digest")


class States(Protocol):
    """A place that keeps states until they are taken or evicted."""

    def get(self, key: StateKey, /) -> "TranscriptState | None":
        """The state of a key, which stays: the caller may only read its plan and outcome."""

    def pop_first(self, keys: Iterable[StateKey], /) -> "TranscriptState | None":
        """Remove and return the state of the first key that has one; the caller owns it."""

    def __setitem__(self, key: StateKey, state: "TranscriptState", /) -> None: ...


class Replayed(msgspec.Struct, frozen=True):
    """What the rules decide about a transcript with paired calls.

    head: the transcript after the rules on the leading messages, and the decisions about these.
    edited: the transcript with its leading messages fitted, its results tidied and truncated, and its long messages
        shortened; the decisions about the head are not among its own.
    pins: by the results' indexes.
    recalled: passages from what was removed, by the indexes of the messages that they stand behind.
    limits: those of the request; the policy's own limit counts in `fitting`, if there is one and it has an effect.
    cold: the cuts that were decided at a cold cache, by number of messages.
    """

    head: Outcome
    edited: Outcome
    pins: Mapping[int, Pin]
    window: Window
    limits: Limits
    cold: Mapping[int, ColdCut]
    recalled: Mapping[int, Pin]


class Asked(msgspec.Struct, frozen=True):
    """A request for the summary of a cut, and what it was made of: everything before the cut was made."""

    request: SummaryRequest
    window: tuple[tuple[Cut, ...], int | None, tuple[tuple[int, int], ...]]
    messages: Sequence[Message]


class TranscriptState(msgspec.Struct, eq=False):
    """The results of the rules for a transcript so far. Each part is extended message by message.

    leading: the number of messages at the start that always stay.
    key: what it is kept under from now on; None if it is not kept.
    edits: the tool results after tidying and truncation.
    hashes: hashes of the prefixes (prefix.py).
    last: the last plan, and the `max_tokens` of the completion that it is for.
    done: the last plan carried out, its summary, and the outcome.
    pruned: results that became placeholders.
    memory: the messages with retrieved memory.
    users: the user messages over the limit of a message.
    arguments: the calls with long arguments that are stale.
    pinned: results with their pins. recalled: messages with what was looked up for them.
    asked: the last request for the summary of a cut.
    spliced: what stood for the cut part at last.
    is_grown: more than one request has used this state.

    After a LargeWorkError, the part that raised it must not be used again.
    """

    leading: int
    edits: Edits
    key: StateKey | None = None
    hashes: Sequence[bytes] = ()
    last: tuple[Plan, int | None] | None = None
    done: tuple[Plan, Summary | None, Outcome] | None = None
    pruned: Pruned = msgspec.field(default_factory=dict)
    is_grown: bool = False
    pairing: Pairing = msgspec.field(default_factory=Pairing)
    anchors: Anchors = msgspec.field(default_factory=Anchors)
    memory: Memory = msgspec.field(default_factory=Memory)
    users: LongUsers = msgspec.field(default_factory=LongUsers)
    arguments: LongArguments = msgspec.field(default_factory=LongArguments)
    pinned: Pinned = msgspec.field(default_factory=dict)
    recalled: Pinned = msgspec.field(default_factory=dict)
    asked: Asked | None = None
    spliced: Spliced | None = None
    _long: LongMessages | None = None
    _pins: Pins | None = None
    _fold: Fold | None = None
    _view: View | None = None
    _recalls: Recalls | None = None
    _head: tuple[tuple[Message, ...], tuple[int, Limits, bool], Room] | None = None  # that fits, by what, and its room
    _weighed: tuple[int, int] = (0, 0)  # after so many messages, the bytes of the fold

    @property
    def size_bytes(self) -> int:
        """Memory that the state takes, in bytes, roughly. Messages held by two parts count twice."""
        number, fold = len(self.hashes), self._fold
        if fold is not None and 8 * number > 9 * self._weighed[0]:  # it grows evenly, and has many parts
            self._weighed = number, fold.size_bytes
        held_bytes = self.edits.size_bytes + self.memory.size_bytes + self.users.size_bytes
        held_bytes += self.arguments.size_bytes + self.anchors.size_bytes
        for part in (self._long, self._pins, self._recalls, self._view):
            held_bytes += 0 if part is None else part.size_bytes
        made_bytes = OBJECT_BYTES * (len(self.pruned) + len(self.pinned))
        return held_bytes + self._weighed[1] + HASH_BYTES * number + made_bytes

    def give_back(self, states: States | None) -> None:
        if states is not None and self.key is not None:
            states[self.key] = self

    def find_plan(
        self, conversation: Conversation, max_tokens: int | None, cold: Mapping[bytes, ColdCut]
    ) -> Plan | None:
        """The last plan, if it is for an equal conversation, the same `max_tokens` and cold cuts; else None."""
        # Read in one operation: another thread may change `last` at the same time.
        plan, planned_max_tokens = self.last or (None, None)
        if plan is None or planned_max_tokens != max_tokens or plan.original != conversation:
            return None
        return plan if plan.cold == (find_cold(plan.hashes, cold) if cold else NOT_COLD) else None

    def find_outcome(self, plan: Plan, summary: Summary | None) -> Outcome | None:
        """The outcome of this plan with this summary, if it was the last one carried out; else None."""
        done_plan, done_summary, outcome = self.done or (None, None, None)
        return outcome if done_plan is plan and done_summary == summary else None

    def edit(self, conversation: Conversation, policy: Policy, work: Work) -> Outcome:
        """The conversation with its results tidied and truncated, and its long messages shortened.

        Raises LargeWorkError.
        """
        self.edits.extend(conversation.messages, policy, work)
        self.hashes = hash_prefixes(conversation.messages, self.hashes)
        edited = self.edits.apply(conversation)
        if policy.max_message_tokens is None:
            return edited
        self._long = self._long or LongMessages(self.leading)
        self._long.extend(conversation.messages, policy, work)
        shortened = self._long.apply(edited.conversation)
        decisions, changed = edited.decisions + shortened.decisions, edited.changed + shortened.changed
        return Outcome(shortened.conversation, decisions, changed)

    def find_pins(self, messages: Sequence[Message], policy: Policy, work: Work) -> Mapping[int, Pin]:
        """The pins of messages that were edited already, by the results' indexes. Raises LargeWorkError."""
        if not policy.pin_instruction:
            return NO_PINS
        self._pins = self._pins or Pins(self.leading)
        return self._pins.extend(messages, policy, work)

    def replay(
        self,
        conversation: Conversation,
        policy: Policy,
        limits: Limits,
        work: Work,
        cold: Mapping[bytes, ColdCut] = NO_COLD,
    ) -> Replayed:
        """Decide about a transcript with paired calls; `cold` has cuts at a cold cache. Raises LargeWorkError."""
        edited = self.edit(conversation, policy, work)
        messages = edited.conversation.messages
        self.memory.extend(messages, self.leading, policy, work)
        head, room = self._fit_head(edited.conversation, policy, limits, work)
        messages = head.conversation.messages
        pins = self.find_pins(messages, policy, work)
        bare = self.memory.strip(messages)
        if policy.truncate_users:
            self.users.extend(bare, self.leading, policy, work)
        if not conversation.continues and policy.overflow_strategy in PRUNING:
            self.arguments.extend(messages, self.leading, policy, work)
        # What the upstream holds is not known: neither what is left of the window, nor what a cut could remove.
        at = find_cold(self.hashes, cold) if cold and not conversation.continues else NOT_COLD
        if policy.recalls and not conversation.continues:
            find = partial(self.find_window, room=room, policy=policy, pins=pins, cold=at)
            self._look_up(conversation.messages, lambda whole: find(bare[: len(whole)]), policy, work)
        is_begun = ends_with_prefill(bare) and bare[-1].tokens * PREFILL_SHARE <= limits.limit
        told = bare[:-1] if is_begun else bare
        window = Window() if conversation.continues else self.find_window(told, room, policy, pins, at)
        edited = Outcome(head.conversation, edited.decisions, edited.changed)
        soft_limit = None if room.soft is None else policy.soft_limit_tokens(limits.limit)
        if soft_limit is not None and soft_limit < limits.fitting:
            limits = limits._replace(fitting=soft_limit)
        recalled = NO_PINS if self._recalls is None else self._recalls.pins
        return Replayed(head, edited, pins, window, limits, at, recalled)

    def _fit_head(self, conversation: Conversation, policy: Policy, limits: Limits, work: Work) -> tuple[Outcome, Room]:
        """The conversation with its head fitted, and the room that it leaves. Both are known if the head is the same.

        The head is all up to the task statement. Raises LargeWorkError.
        """
        messages, by = conversation.messages, (conversation.fixed_tokens, limits, conversation.continues)
        known, head = self._head, Outcome(conversation)
        if known is not None and known[1] == by and messages[: len(known[0])] == known[0]:
            return head, known[2]
        at = next((at for at in range(self.leading, len(messages)) if messages[at].role is Role.USER), None)
        if self.leading and not conversation.continues:
            task_tokens = 0 if at is None else self.memory.bare.get(at, messages[at]).tokens
            head = fit_head(conversation, task_tokens, policy, limits.limit, work)
        room = Room.measure(
            self.memory.strip(head.conversation.messages),
            conversation.fixed_tokens,
            limits.limit,
            spare=limits.spare,
            shortens=policy.on_exceeded is OnExceeded.TRUNCATE,
            soft_limit=policy.soft_limit_tokens(limits.limit),
        )
        if at is not None and not head.decisions:
            self._head = messages[: at + 1], by, room
        return head, room

    def find_window(
        self,
        messages: Sequence[Message],
        room: Room,
        policy: Policy,
        pins: Mapping[int, Pin] = NO_PINS,
        cold: Mapping[int, ColdCut] = NOT_COLD,
    ) -> Window:
        """The window for edited messages without their memory.

        If the room or an earlier cold cut has changed, the fold starts again.
        """
        if self._fold is None or self._fold.room != room or not self._fold.fits(cold):
            self._fold, self._recalls = Fold(room, policy), None
        recalled = NO_PINS if self._recalls is None else self._recalls.pins
        new = range(len(self._fold), len(messages)) if pins or recalled else ()
        added = {at: pins[at].tokens for at in new if at in pins} if pins else NO_TOKENS
        if recalled:
            added = {**added, **{at: recalled[at].tokens + added.get(at, 0) for at in new if at in recalled}}
        stale = self.arguments.tokens
        return self._fold.extend(messages, self.memory.savings, added, cold, self.users.tokens, stale).finish()

    def _look_up(
        self, messages: Sequence[Message], find: Callable[[Sequence[Message]], Window], policy: Policy, work: Work
    ) -> None:
        """Look up what each new message names in what was removed before it. `find`: makes the window before it.

        messages: the client's own, with paired calls.
        """
        if work.open_archive is None:
            return
        find(())  # the fold may have to start again, and what was looked up with it
        fold, recalls = self._fold, self._recalls
        if fold is None or recalls is None:
            recalls = self._recalls = Recalls(self.leading, work.open_archive())
        for at in range(max(0 if fold is None else len(fold), self.leading), len(messages)):
            if may_ask(messages[at]):
                find(messages[:at])
                if self._fold is not None:
                    window, room = self._fold.window, self._fold.room.tokens
                    recalls.find(at, messages, window, room, policy, work, stale=self.arguments.stale)

    def ask(self, messages: Sequence[Message], window: Window) -> SummaryRequest | None:
        """The request for the summary of the window's last cut: the known one, if it is about the same."""
        known, self.asked = self.asked, None
        if not window.cuts:
            return None
        of, made = (window.cuts[-2:], window.task, window.spared), messages[: window.cuts[-1].made_at]
        if known is None or known.window != of or known.messages != made:
            request = request_summary(messages, self.hashes, window)
            known = None if request is None else Asked(request, of, made)
        self.asked = known
        return None if known is None else known.request

    def dedupe(self, conversation: Conversation, start: int, policy: Policy, work: Work) -> Outcome:
        """Replace repeated results from `start` on; starts again if messages from there on have changed.

        Raises LargeWorkError.
        """
        messages, view, self._view = conversation.messages, self._view, None
        if view is None or view.start != start or not view.is_beginning_of(messages):
            view = View(start)
        view.extend(messages, policy, work)
        self._view = view
        return view.apply(conversation)


def find_cold(hashes: Sequence[bytes], cold: Mapping[bytes, ColdCut]) -> Mapping[int, ColdCut]:
    return {at: cold[chain] for at, chain in enumerate(hashes) if chain in cold}


def take_state(states: States | None, messages: Sequence[Message], key: StateKey) -> TranscriptState:
    """The state of the longest known beginning of a transcript; an empty one if none is known.

    key: that of the whole transcript. The search goes back at most MAX_GROWTH messages.
    """
    counter, policy, leading, number, _ = key
    stops = range(number - 1, max(number - MAX_GROWTH, leading - 1), -1)
    shorter = ((counter, policy, leading, stop, _digest(messages, leading, stop)) for stop in stops)
    names = chain((key,), shorter)
    while states is not None and (state := states.pop_first(names)) is not None:
        if state.edits.is_beginning_of(messages):
            state.is_grown = True
            return state
        state.give_back(states)  # that of another session of the same script, or of these messages before pairing
    return TranscriptState(leading, Edits(leading, (TIDY, TRUNCATE)))


def name_state(messages: Sequence[Message], policy: Policy, work: Work) -> StateKey:
    """The key of the state that has seen the whole transcript; the same before and after the rules on results."""
    leading, number = count_leading(messages), len(messages)
    return work.counter, name_policy(policy), leading, number, _digest(messages, leading, number)


def _digest(messages: Sequence[Message], leading: int, stop: int) -> tuple[bytes, ...]:
    first = messages[leading : leading + 1] if leading < stop else ()
    newest = messages[max(stop - KEY_MESSAGES, leading) : stop]
    return tuple(map(_tell_digest, (*first, *newest)))
