"""What was found of a transcript, kept for when it comes again with some messages more.

Law: only a matter of time. What was kept is used where a transcript begins with those very messages, and nowhere else;
leading system and developer messages do not count, for nothing that is kept depends on them.
"""

from collections.abc import Sequence
from operator import attrgetter, is_
from sys import getsizeof
from typing import Protocol, TypeVar

from rules.conversation import Message

MAX_GROWTH = 64
"""Messages. A transcript that has grown by more since it was seen last is looked at anew."""
OBJECT_BYTES = 600
"""What a message costs in memory beside its bytes and its characters."""

_find_raw = attrgetter("raw")


class Seen(Protocol):
    """A state that goes on from message to message. `messages` are those that it has seen, without a gap."""

    messages: list[Message]


S = TypeVar("S", bound=Seen)


class SeenMemo(Protocol[S]):
    """States by the last message that they have seen."""

    def take(self, key: bytes) -> S | None:
        """The state kept under a key, which is its taker's own from now on."""

    def keep(self, key: bytes, state: S) -> None:
        """Keep a state until it is taken, or forgotten."""


def take_seen(memo: SeenMemo[S], context: bytes, messages: Sequence[Message], start: int) -> S | None:
    """The state that has seen the most of the messages from `start` on; `context` names all else that it depends on."""
    for stop in range(len(messages), max(len(messages) - MAX_GROWTH, start), -1):
        state = memo.take(_name(context, stop - start, messages[stop - 1]))
        if state is not None and _are_same(state.messages, messages[start:stop]):
            return state
    return None


def keep_seen(memo: SeenMemo[S], context: bytes, state: S) -> None:
    """Keep a state for the transcript that goes on from there."""
    if state.messages:
        memo.keep(_name(context, len(state.messages), state.messages[-1]), state)


def weigh_message(message: Message) -> int:
    """What a message holds in memory, about, in bytes."""
    calls = message.tool_calls
    texts = sum(map(getsizeof, message.texts)) + sum(getsizeof(call.arguments) for call in calls)
    return OBJECT_BYTES * (1 + len(calls)) + len(message.raw) + texts


def _name(context: bytes, number: int, last: Message) -> bytes:
    return b"%b%d:%b" % (context, number, last.digest)


def _are_same(left: Sequence[Message], right: Sequence[Message]) -> bool:
    """Whether messages are equal, and stand for the same bytes of the client's: those are told by identity."""
    return list(left) == list(right) and all(map(is_, map(_find_raw, left), map(_find_raw, right)))
