"""Which call each tool result answers, and how its tool's results are treated.

Law: only earlier messages of the same step decide which call a result answers.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rules.conversation import Message, Role, ToolCall, count_leading
from rules.policy import Policy
from rules.treatment import Treatment


class Place(NamedTuple):
    """A tool result of a transcript.

    at: its index.
    call: the call that it answers, if any.
    treatment: how its tool's results are treated.
    treatment_name: text that is equal for equal treatments; as a part of cache keys it is cheaper to hash.
    """

    at: int
    call: ToolCall | None
    treatment: Treatment
    treatment_name: str


class Waiting:
    """The calls of one message that have no result yet."""

    __slots__ = ("_queues", "_taken", "calls")

    def __init__(self, calls: Sequence[ToolCall]) -> None:
        self.calls = calls
        self._taken: set[int] = set()
        self._queues: dict[tuple[str, str | None], deque[int]] = {}  # by id, and by id and name
        for at, call in enumerate(calls):
            for key in ((call.id, call.name), (call.id, None)):
                self._queues.setdefault(key, deque()).append(at)

    def take(self, call_id: str, name: str | None) -> int | None:
        """The place of the call that a result answers, which then no longer waits; None if none is found.

        That is the oldest call with this id, and of several such the oldest with this name.
        """
        for key in ((call_id, name), (call_id, None)):
            queue = self._queues.get(key)
            while queue:
                at = queue.popleft()
                if at not in self._taken:
                    self._taken.add(at)
                    return at
        return None

    def list(self) -> Iterator[int]:
        """The places of the calls that still wait, in their order."""
        return (at for at in range(len(self.calls)) if at not in self._taken)


_NO_CALLS = Waiting(())


class OpenCalls:
    """The unanswered calls of the newest message that is not a result. Expects a paired transcript (pairing.py).

    A result that names a tool instead of a call gets the last call of that tool.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting = _NO_CALLS

    def answer(self, message: Message) -> ToolCall | None:
        """Add the next message; return the call that it answers, if any."""
        if message.role is not Role.TOOL:
            self._waiting = Waiting(message.tool_calls) if message.tool_calls else _NO_CALLS
            return None
        calls = self._waiting.calls
        if message.answers is None:
            return next((call for call in reversed(calls) if call.name == message.name), None)
        at = self._waiting.take(message.answers, message.name)
        return None if at is None else calls[at]


def find_results(messages: Sequence[Message], policy: Policy, start: int = 0) -> list[Place]:
    """Each tool result of a paired transcript (pairing.py) from index `start` on, oldest first, with its call.

    Leading system messages are skipped.
    """
    places: list[Place] = []
    treatments: dict[str, tuple[Treatment, str]] = {}
    start = first = max(start, count_leading(messages))
    while 0 < first < len(messages) and messages[first].role is Role.TOOL:
        first -= 1  # back to the message that makes the calls
    calls = OpenCalls()
    for index, message in enumerate(messages[first:], first):
        call = calls.answer(message)
        if index < start or message.role is not Role.TOOL:
            continue
        name = call.name if call is not None else message.name or ""
        known = treatments.get(name)
        if known is None:
            treatment = policy.find_treatment(name)
            known = treatments[name] = treatment, repr(treatment)
        places.append(Place(index, call, *known))
    return places
