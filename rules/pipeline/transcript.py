"""What was worked out of a transcript, kept for the request that continues it.

Law: it saves time and changes nothing else. A state goes on only with a transcript that begins with the very messages
that it has seen, counted the same way, under an equal policy. Leading system and developer messages do not count,
except for the room that they leave: nothing else here depends on them.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from rules.conversation import Conversation, Message, Outcome, count_leading
from rules.policy import Policy, name_policy
from rules.prefix import hash_prefixes
from rules.results.dedupe import IsExempt, KeptResults, View, dedupe_tool_results
from rules.results.excerpt.rule import TRUNCATE
from rules.results.incremental import Edits
from rules.results.tidy.rule import TIDY
from rules.results.work import Work
from rules.window.replay import Fold
from rules.window.room import Room
from rules.window.state import Window

MAX_GROWTH = 64
"""Messages. A transcript that has grown by more since it was seen last is worked through anew."""
KEY_MESSAGES = 3
"""How many of the newest messages name a state. Chosen: one would do for most sessions, but those of one script, run
side by side, often have the same words at the same place ("Go on."), and would take each other's states."""
HASH_BYTES = 80
"""What 32 bytes in a list hold in memory."""

StateKey = tuple[int, bytes, int, int, tuple[bytes, ...]]
"""The counter, the policy's name, how many messages lead, how many there are, and the digests of the newest."""


class States(Protocol):
    """Where states are kept until they are taken, or forgotten."""

    def pop_first(self, keys: Iterable[StateKey], /) -> "TranscriptState | None":
        """The state under the first key that has one. It is its taker's own from now on."""

    def __setitem__(self, key: StateKey, state: "TranscriptState", /) -> None:
        """Keep a state."""


class TranscriptState:
    """What the rules made of a transcript so far. Each part goes on from message to message.

    `hashes` are those of the prefixes (prefix.py). After a LargeWorkError the part that raised it is of no use.
    """

    __slots__ = ("_edits", "_fold", "_view", "hashes")

    def __init__(self, leading: int) -> None:
        self.hashes: Sequence[bytes] = ()
        self._edits = Edits(leading, (TIDY, TRUNCATE))
        self._fold: Fold | None = None
        self._view: View | None = None

    @property
    def size_bytes(self) -> int:
        """What it holds in memory, about. Messages that two parts hold count twice."""
        parts = (part for part in (self._edits, self._fold, self._view) if part is not None)
        return HASH_BYTES * len(self.hashes) + sum(part.size_bytes for part in parts)

    def is_beginning_of(self, messages: Sequence[Message]) -> bool:
        """Whether a transcript begins with the messages seen so far."""
        return self._edits.is_beginning_of(messages)

    def edit(self, conversation: Conversation, policy: Policy, work: Work) -> Outcome:
        """The conversation with its results tidied and truncated. Raises LargeWorkError."""
        self._edits.extend(conversation.messages, policy, work)
        self.hashes = hash_prefixes(conversation.messages, self.hashes)
        return self._edits.apply(conversation)

    def replay(self, messages: Sequence[Message], room: Room, policy: Policy) -> Window:
        """Where the edited messages are cut, within a room; begun anew if the room has changed."""
        if self._fold is None or self._fold.room != room:
            self._fold = Fold(room, policy)
        return self._fold.extend(messages).finish()

    def dedupe(self, conversation: Conversation, start: int, is_exempt: IsExempt, work: Work) -> Outcome:
        """The conversation with repeated results from `start` on replaced; begun anew if what stands there changed.

        Raises LargeWorkError.
        """
        view, self._view = self._view, None
        if view is None or view.start != start or not view.is_beginning_of(conversation.messages):
            view = View(start)
        view.extend(conversation.messages, is_exempt, work)
        self._view = view
        return view.apply(conversation)


class _NoStates:
    """Keeps nothing."""

    def pop_first(self, _keys: Iterable[StateKey], /) -> None:
        return None

    def __setitem__(self, _key: StateKey, _state: TranscriptState, /) -> None:
        pass


NO_STATES = _NoStates()


def take_state(states: States, messages: Sequence[Message], policy: Policy, work: Work) -> TranscriptState:
    """The state of the longest known beginning of a transcript whose calls are paired; an empty one if none is known.

    The search is bounded by MAX_GROWTH.
    """
    leading = count_leading(messages)
    shortest = max(len(messages) - MAX_GROWTH + 1, leading)
    keys = (_name(messages, leading, stop, policy, work) for stop in range(len(messages), shortest - 1, -1))
    state = states.pop_first(keys)
    return state if state is not None and state.is_beginning_of(messages) else TranscriptState(leading)


def keep_state(states: States, messages: Sequence[Message], policy: Policy, work: Work, state: TranscriptState) -> None:
    """Keep the state of a transcript that it has seen the whole of."""
    states[_name(messages, count_leading(messages), len(messages), policy, work)] = state


def dedupe_results(
    states: States, conversation: Conversation, hashes: Sequence[bytes], start: int, policy: Policy, work: Work
) -> Outcome:
    """The conversation with repeated results from `start` on replaced, as `dedupe_tool_results` does it.

    It goes on with the state that has seen a transcript of these `hashes`. Raises LargeWorkError.
    """
    messages = conversation.messages
    leading = count_leading(messages)
    start, is_exempt = max(start, leading), KeptResults(messages, policy).is_kept
    key = _name(messages, leading, len(messages), policy, work)
    state = states.pop_first([key])
    if state is None:  # another request has taken it meanwhile
        return dedupe_tool_results(conversation, start=start, is_exempt=is_exempt, work=work)
    try:
        if state.hashes != hashes:  # of another transcript, with the same newest messages
            return dedupe_tool_results(conversation, start=start, is_exempt=is_exempt, work=work)
        return state.dedupe(conversation, start, is_exempt, work)
    finally:
        states[key] = state


def _name(messages: Sequence[Message], leading: int, stop: int, policy: Policy, work: Work) -> StateKey:
    """The key of the state of the first `stop` messages. Rules on texts and results leave digests as they are."""
    newest = messages[max(stop - KEY_MESSAGES, leading) : stop]
    return work.counter, name_policy(policy), leading, stop, tuple([message.digest for message in newest])
