"""Which call each tool result answers, and how its tool's results are treated.

Law: only earlier messages of the same step decide which call a result answers.
"""

from collections.abc import Sequence
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


class OpenCalls:
    """The unanswered calls of the newest message that is not a result. Expects a paired transcript (pairing.py).

    If several calls have the same id, a result gets the oldest unanswered one. A result that names a tool instead of a
    call gets the last call of that tool.
    """

    __slots__ = ("_calls", "_waiting")

    def __init__(self) -> None:
        self._calls: Sequence[ToolCall] = ()
        self._waiting: dict[str, list[ToolCall]] = {}  # by id, the newest first

    def answer(self, message: Message) -> ToolCall | None:
        """Add the next message; return the call that it answers, if any."""
        if message.role is not Role.TOOL:
            self._calls = message.tool_calls
            self._waiting = {}
            for call in reversed(self._calls):
                self._waiting.setdefault(call.id, []).append(call)
            return None
        if message.answers is None:
            return next((call for call in reversed(self._calls) if call.name == message.name), None)
        alike = self._waiting.get(message.answers)
        return alike.pop() if alike else None


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
