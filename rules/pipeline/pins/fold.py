"""Which results of a transcript get a pin, and its text; message by message.

Law: a fold. The pin of a result depends only on the messages up to it. A step gets at most one, behind its last result,
and only if every call of the step has a result of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rules.conversation import Message, Role
from rules.pipeline.pins.goal import find_goal
from rules.policy import Policy
from rules.results.work import Work
from rules.summary.carried.open_item import OpenItem
from rules.text.markers import mark_pin

LONG_TOKENS = 2000
"""The results of a step that cost more than this together get a pin. Chosen: half of the default limit of one result,
and more than 100 lines. A pin costs some 40 to 100 tokens, so it adds at most about 5 % to what it follows."""
PIN_BYTES = 1000
"""Memory of a pin. Chosen: above the size of its line, its object and its place in a list."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A line that is appended to the last text of result `at`, which then costs `tokens` more."""

    at: int
    line: str
    tokens: int


class Pins:
    """The pins of a transcript so far.

    leading: number of messages at the start that are skipped.
    """

    def __init__(self, leading: int) -> None:
        self._stop = leading  # the messages before this index have been read
        self._pins: dict[int, Pin] = {}
        self._goal = ""
        self._open_item = OpenItem()
        self._step: list[Message] = []

    @property
    def size_bytes(self) -> int:
        """Memory that this takes, in bytes, roughly. Messages are held elsewhere too."""
        return PIN_BYTES * (1 + len(self._pins)) + self._open_item.size_bytes

    def extend(self, messages: Sequence[Message], policy: Policy, work: Work) -> dict[int, Pin]:
        """Read the new messages of a paired transcript (pairing.py); return all pins, by the results' indexes.

        The messages are those to forward. Raises LargeWorkError; then this object must not be used again.
        """
        for index in range(self._stop, len(messages)):
            self._add(index, messages[index], policy, work)
        self._stop = max(self._stop, len(messages))
        return self._pins

    def _add(self, index: int, message: Message, policy: Policy, work: Work) -> None:
        if message.role is Role.TOOL:
            self._step.append(message)
        else:
            self._step = [message]
        if message.role is Role.USER:
            work.allowance.spend(sum(map(len, message.texts)))
            self._goal = find_goal(message, policy.memory_tags) or self._goal
        opener = self._step[0]
        if opener.role is not Role.ASSISTANT or len(self._step) != 1 + len(opener.tool_calls):
            return
        work.allowance.spend(sum(map(_measure, self._step)))
        self._open_item.add(self._step)
        if self._is_long() and self._goal and message.texts:
            line = mark_pin(self._goal, self._open_item.find())
            self._pins[index] = Pin(index, line, work.count(f"\n{line}"))

    def _is_long(self) -> bool:
        """Whether the results of the step are long together, and the client sent each of them."""
        results = self._step[1:]
        return all(result.raw for result in results) and sum(result.tokens for result in results) > LONG_TOKENS


def _measure(message: Message) -> int:
    """Number of characters of a message in which a task list is looked for."""
    return sum(map(len, message.texts)) + sum(len(call.arguments) for call in message.tool_calls)
