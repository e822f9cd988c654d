"""The newest messages, which the model has not answered yet: how much of each goes out if all of them do not fit.

Law: a function of the messages added. Nothing is shared out that fits; no message gets less than a placeholder.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from rules.conversation import Message, Role
from rules.window.images import saving_tokens
from rules.window.prune import PLACEHOLDER_TOKENS


@dataclass(frozen=True, slots=True)
class Cap:
    """Message `at` is forwarded with at most `tokens` tokens, its frame and its attachments included.

    Less than its attachments cost: the oldest of its images give way, too.
    """

    at: int
    tokens: int


class _Part(NamedTuple):
    at: int
    tokens: int
    least_tokens: int
    bare_tokens: int
    is_result: bool


def least_tokens(message: Message) -> int:
    """What a message costs if its texts are cut as far as they may be: attachments stay."""
    return min(message.tokens, PLACEHOLDER_TOKENS + sum(part.tokens for part in message.media))


def bare_tokens(message: Message) -> int:
    """The same without its images."""
    return least_tokens(message) - saving_tokens(message)


class OpenStep:
    """The tool results that no answer has followed, and the user's words behind them."""

    __slots__ = ("_parts", "_savings", "_seen", "_spares")

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._spares = [0]  # what could be taken away of the first parts, for each number of them
        self._savings = [0]  # the same of their images
        self._seen = 0  # messages of the whole transcript

    def add(self, message: Message, *, is_task: bool) -> None:
        """Go on by one message. The task statement has a rule of its own (window/room.py)."""
        is_result = message.role is Role.TOOL
        if message.role is Role.ASSISTANT:
            self._parts.clear()
            self._spares = [0]
            self._savings = [0]
        elif is_result or (message.role is Role.USER and not is_task):
            least = least_tokens(message)
            bare = bare_tokens(message) if message.media else least
            part = _Part(self._seen, message.tokens, least, bare, is_result)
            self._parts.append(part)
            self._spares.append(self._spares[-1] + part.tokens - least)
            self._savings.append(self._savings[-1] + least - bare)
        self._seen += 1

    def spare_tokens(self, start: int, *, of_images: bool = False) -> int:
        """How many tokens could be taken away at most of the messages from `start` on; `of_images`, of theirs, too."""
        # One by one, a step of many thousand results would take the square of that.
        rank = bisect_left(self._parts, start, key=attrgetter("at"))
        images = self._savings[-1] - self._savings[rank] if of_images else 0
        return self._spares[-1] - self._spares[rank] + images

    def saving_tokens(self, cap: Cap) -> int:
        """What is saved at most without the images of a message that is capped so."""
        rank = bisect_left(self._parts, cap.at, key=attrgetter("at"))
        return max(cap.tokens - self._parts[rank].bare_tokens, 0)

    def share(self, excess: int, start: int, *, of_images: bool = False) -> tuple[Cap, ...] | None:
        """What each message from `start` on may keep so that `excess` tokens go, oldest first.

        None if they cannot spare so much. The results give way first, the largest before the others; the user's words
        only if that is not enough; `of_images`, images give way as well, the oldest first.
        """
        everything = [part for part in self._parts if part.at >= start]
        if of_images:
            return _drop_images(everything, excess)
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


def _drop_images(parts: Sequence[_Part], excess: int) -> tuple[Cap, ...] | None:
    """Caps that leave texts no more than they must have, and the oldest messages fewer images."""
    excess -= sum(part.tokens - part.least_tokens for part in parts)
    caps: list[Cap] = []
    for part in parts:
        less = min(max(excess, 0), part.least_tokens - part.bare_tokens)
        excess -= less
        if part.least_tokens - less < part.tokens:
            caps.append(Cap(part.at, part.least_tokens - less))
    return None if excess > 0 else tuple(caps)


def _cap(part: _Part, level: int) -> int:
    return min(part.tokens, max(part.least_tokens, level))
