"""The newest messages, which the model has not answered yet: how much of each goes out if all of them do not fit.

Law: a function of the messages added. Nothing is shared out that fits; no message gets less than a placeholder.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from rules.conversation import Message, Role
from rules.window.prune import PLACEHOLDER_TOKENS


@dataclass(frozen=True, slots=True)
class Cap:
    """Message `at` is forwarded with at most `tokens` tokens, its frame and its attachments included."""

    at: int
    tokens: int


class _Part(NamedTuple):
    at: int
    tokens: int
    least_tokens: int
    is_result: bool


def least_tokens(message: Message) -> int:
    """What a message costs if its texts are cut as far as they may be: attachments stay."""
    return min(message.tokens, PLACEHOLDER_TOKENS + sum(part.tokens for part in message.media))


class OpenStep:
    """The tool results that no answer has followed, and the user's words behind them."""

    __slots__ = ("_parts", "_seen", "_spares")

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._spares = [0]  # what could be taken away of the first parts, for each number of them
        self._seen = 0  # messages of the whole transcript

    def add(self, message: Message, *, is_task: bool) -> None:
        """Go on by one message. The task statement has a rule of its own (window/room.py)."""
        is_result = message.role is Role.TOOL
        if message.role is Role.ASSISTANT:
            self._parts.clear()
            self._spares = [0]
        elif is_result or (message.role is Role.USER and not is_task):
            part = _Part(self._seen, message.tokens, least_tokens(message), is_result)
            self._parts.append(part)
            self._spares.append(self._spares[-1] + part.tokens - part.least_tokens)
        self._seen += 1

    def spare_tokens(self, start: int) -> int:
        """How many tokens could be taken away at most of the messages from `start` on."""
        # One by one, a step of many thousand results would take the square of that.
        return self._spares[-1] - self._spares[bisect_left(self._parts, start, key=attrgetter("at"))]

    def share(self, excess: int, start: int) -> tuple[Cap, ...] | None:
        """What each message from `start` on may keep so that `excess` tokens go, oldest first.

        None if they cannot spare so much. The results give way first, the largest before the others; the user's words
        only if that is not enough.
        """
        everything = [part for part in self._parts if part.at >= start]
        results = [part for part in everything if part.is_result]
        for parts in (results, everything):
            if sum(part.tokens - part.least_tokens for part in parts) >= excess:
                return _level(parts, excess)
        return None


def _level(parts: Sequence[_Part], excess: int) -> tuple[Cap, ...]:
    """The highest level that, as a cap for each message, takes `excess` tokens away."""
    low, high = 0, max((part.tokens for part in parts), default=0)
    while low < high:
        level = (low + high + 1) // 2
        if sum(part.tokens - _cap(part, level) for part in parts) >= excess:
            low = level
        else:
            high = level - 1
    return tuple(Cap(part.at, _cap(part, low)) for part in parts if _cap(part, low) < part.tokens)


def _cap(part: _Part, level: int) -> int:
    return min(part.tokens, max(part.least_tokens, level))
