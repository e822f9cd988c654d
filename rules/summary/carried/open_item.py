"""The item of the agent's task list that is to be done next, followed step by step.

Law: a function of the steps added. What is kept of them is bounded.
"""

from collections import deque
from collections.abc import Sequence

from rules.conversation import Message
from rules.summary.carried.item import Rank
from rules.summary.carried.task_list import Extent, find_task_list, measure_tasks
from rules.summary.quoting import quote_line

ITEM_CHARS = 120
"""Maximum number of characters of the item. Chosen: longer than almost all items of real agents."""
KEPT_CHARS = 128 * 1024
"""The newest steps about the list are kept, up to this many characters together. Chosen: twice the longest plan file
that is read; bounds the work of reading them again."""


class OpenItem:
    """The steps that say something about the task list, from the newest whole list on."""

    __slots__ = ("_chars", "_found", "_is_read", "_steps")

    def __init__(self) -> None:
        self._steps: deque[tuple[Message, ...]] = deque()
        self._chars = 0
        self._found = ""
        self._is_read = True

    @property
    def size_bytes(self) -> int:
        """Memory that this takes, in bytes, roughly."""
        return self._chars

    def add(self, step: Sequence[Message]) -> None:
        """Add the next step: a message of the assistant and the results of its calls."""
        extent = measure_tasks(step)
        if extent is Extent.NOTHING:
            return
        if extent is Extent.WHOLE:
            self._steps.clear()
            self._chars = 0
        self._steps.append(tuple(step))
        self._chars += _measure(step)
        while self._chars > KEPT_CHARS and len(self._steps) > 1:
            self._chars -= _measure(self._steps.popleft())
        self._is_read = False

    def find(self) -> str:
        """The item that is being done, else the first open one, as one line; empty if there is none."""
        if not self._is_read:
            tasks = find_task_list([message for step in self._steps for message in step], ())
            items = [] if tasks is None else [item for item in tasks.items if item.rank in {Rank.ACTIVE, Rank.OPEN}]
            label = min(items, key=lambda item: item.rank).label if items else ""
            self._found = quote_line(label, ITEM_CHARS)
            self._is_read = True
        return self._found


def _measure(step: Sequence[Message]) -> int:
    """Number of characters of a step."""
    texts = sum(len(text) for message in step for text in message.texts)
    return texts + sum(len(call.arguments) for message in step for call in message.tool_calls)
