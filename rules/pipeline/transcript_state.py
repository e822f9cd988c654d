"""What was worked out of a transcript, kept for the request that continues it.

Law: it saves time and changes nothing else. A state goes on only with a transcript that begins with the very messages
that it has seen, counted the same way, under an equal policy. Leading system and developer messages do not count,
except for the room that they leave: nothing else here depends on them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rules.conversation import Conversation, Message, Outcome, count_leading
from rules.pipeline.plan import Plan
from rules.policy import Policy, name_policy
from rules.prefix import hash_prefixes
from rules.results.dedupe import View
from rules.results.excerpt.rule import TRUNCATE
from rules.results.incremental import OBJECT_BYTES, Edits
from rules.results.tidy.rule import TIDY
from rules.results.work import Work
from rules.summary.anchors.memory import Anchors
from rules.summary.request import Summary
from rules.window.cut_decision import Fold
from rules.window.prune import Pruned
from rules.window.room import Room
from rules.window.state import Window

MAX_GROWTH = 64
"""Messages. A transcript that has grown by more since it was seen last is worked through anew."""
KEY_MESSAGES = 3
"""How many of the newest messages name a state. Chosen: one would do for most sessions, but those of one script, run
side by side, often have the same words at the same place ("Go on."), and would take each other's states."""
HASH_BYTES = 120
"""What 32 bytes in a list hold in memory, with the place of a message in a plan."""

StateKey = tuple[int, bytes, int, int, tuple[bytes, ...]]
"""The counter, the policy's name, how many messages lead, how many there are, and the digests of the newest."""


class States(Protocol):
    """Where states are kept until they are taken, or forgotten."""

    def get(self, key: StateKey, /) -> "TranscriptState | None":
        """The state under a key, which is not taken: only its plans may be looked at."""

    def pop_first(self, keys: Iterable[StateKey], /) -> "TranscriptState | None":
        """The state under the first key that has one. It is its taker's own from now on."""

    def __setitem__(self, key: StateKey, state: "TranscriptState", /) -> None:
        """Keep a state."""


@dataclass(slots=True, eq=False)
class TranscriptState:
    """What the rules made of a transcript so far. Each part goes on from message to message.

    `hashes` are those of the prefixes (prefix.py). After a LargeWorkError the part that raised it is of no use.
    `last` is the last plan made, and the completion's `max_tokens` that it is for. `done` is the last one carried out,
    with its summary, and what came of it. `pruned` are the results that became placeholders.
    `is_grown`: more than one request was worked out with it.
    """

    edits: Edits
    hashes: Sequence[bytes] = ()
    last: tuple[Plan, int | None] | None = None
    done: tuple[Plan, Summary | None, Outcome] | None = None
    pruned: Pruned = field(default_factory=dict)
    is_grown: bool = False
    anchors: Anchors = field(default_factory=Anchors)
    _fold: Fold | None = None
    _view: View | None = None

    @property
    def size_bytes(self) -> int:
        """What it holds in memory, about. Messages that two parts hold count twice."""
        parts = (part for part in (self.edits, self.anchors, self._fold, self._view) if part is not None)
        return HASH_BYTES * len(self.hashes) + OBJECT_BYTES * len(self.pruned) + sum(part.size_bytes for part in parts)

    def find_plan(self, conversation: Conversation, max_tokens: int | None) -> Plan | None:
        """The last plan, if it is about this very conversation and a completion of `max_tokens`."""
        # Taken at once: another thread may go on with this state meanwhile.
        plan, planned_max_tokens = self.last or (None, None)
        return plan if plan and planned_max_tokens == max_tokens and plan.original == conversation else None

    def find_outcome(self, plan: Plan, summary: Summary | None) -> Outcome | None:
        """What came of the last plan, if it is this very one, and had the same summary."""
        done_plan, done_summary, outcome = self.done or (None, None, None)
        return outcome if done_plan is plan and done_summary == summary else None

    def edit(self, conversation: Conversation, policy: Policy, work: Work) -> Outcome:
        """The conversation with its results tidied and truncated. Raises LargeWorkError."""
        self.edits.extend(conversation.messages, policy, work)
        self.hashes = hash_prefixes(conversation.messages, self.hashes)
        return self.edits.apply(conversation)

    def replay(self, messages: Sequence[Message], room: Room, policy: Policy) -> Window:
        """Where the edited messages are cut, within a room; begun anew if the room has changed."""
        if self._fold is None or self._fold.room != room:
            self._fold = Fold(room, policy)
        return self._fold.extend(messages).finish()

    def dedupe(self, conversation: Conversation, start: int, policy: Policy, work: Work) -> Outcome:
        """The conversation with repeated results from `start` on replaced; begun anew if what stands there changed.

        Raises LargeWorkError.
        """
        messages, view, self._view = conversation.messages, self._view, None
        if view is None or view.start != start or not view.is_beginning_of(messages):
            view = View(start)
        view.extend(messages, policy, work)
        self._view = view
        return view.apply(conversation)


def take_state(states: States | None, messages: Sequence[Message], policy: Policy, work: Work) -> TranscriptState:
    """The state of the longest known beginning of a transcript whose calls are paired; an empty one if none is known.

    The search is bounded by MAX_GROWTH.
    """
    leading = count_leading(messages)
    context = (work.counter, name_policy(policy), leading)
    stops = range(len(messages), max(len(messages) - MAX_GROWTH, leading - 1), -1)
    state = None if states is None else states.pop_first(_name(context, messages, stop) for stop in stops)
    if state is None or not state.edits.is_beginning_of(messages):
        return TranscriptState(Edits(leading, (TIDY, TRUNCATE)))
    state.is_grown = True
    return state


def name_state(messages: Sequence[Message], policy: Policy, work: Work) -> StateKey:
    """The key of the state that has seen all of a transcript. It is the same before and after the rules on results."""
    return _name((work.counter, name_policy(policy), count_leading(messages)), messages, len(messages))


def _name(context: tuple[int, bytes, int], messages: Sequence[Message], stop: int) -> StateKey:
    newest = messages[max(stop - KEY_MESSAGES, context[-1]) : stop]
    return *context, stop, tuple([message.digest for message in newest])
