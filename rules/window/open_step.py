"""The open step: the newest messages, which the model has not answered yet. If they do not fit, they share the room.

Law: a function of the messages added. If they fit, nothing is shortened. No message gets less than a placeholder.
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
    """Message `at` is forwarded with at most `tokens` tokens, with its frame and its attachments.

    If `tokens` is less than its attachments cost, its oldest images are removed too.
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
    """The cost of a message if its texts are shortened as far as allowed; its attachments stay."""
    return min(message.tokens, PLACEHOLDER_TOKENS + sum(part.tokens for part in message.media))


def bare_tokens(message: Message) -> int:
    """The cost of a message if its texts are shortened as far as allowed and its images are removed."""
    return least_tokens(message) - saving_tokens(message)


class OpenStep:
    """The tool results and user messages that no answer of the model has followed yet."""

    __slots__ = ("_parts", "_savings", "_seen", "_spares")

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._spares = [0]  # [n]: tokens that the first n parts can lose in their texts
        self._savings = [0]  # [n]: tokens that the first n parts can lose in their images
        self._seen = 0  # messages of the whole transcript so far

    def add(self, message: Message, *, is_task: bool, shows_answer: bool) -> None:
        """Add the next message. The task statement is left out: window/room.py has its own rule for it.

        shows_answer: the message is an answer of the model, or shows that there was one before it.
        """
        is_result = message.role is Role.TOOL
        if shows_answer:
            self._parts.clear()
            self._spares = [0]
            self._savings = [0]
        if is_result or (message.role is Role.USER and not is_task):
            least = least_tokens(message)
            bare = bare_tokens(message) if message.media else least
            part = _Part(self._seen, message.tokens, least, bare, is_result)
            self._parts.append(part)
            self._spares.append(self._spares[-1] + part.tokens - least)
            self._savings.append(self._savings[-1] + least - bare)
        self._seen += 1

    def spare_tokens(self, start: int, *, of_images: bool = False) -> int:
        """Tokens that the messages from `start` on can lose at most; with `of_images`, their images too."""
        # Prefix sums: adding up part by part would take quadratic time in a step of many thousand results.
        rank = bisect_left(self._parts, start, key=attrgetter("at"))
        images = self._savings[-1] - self._savings[rank] if of_images else 0
        return self._spares[-1] - self._spares[rank] + images

    def most_spare(self, start: int, excess: int) -> int:
        """Tokens that the messages from `start` on can lose; with their images if `excess` cannot be lost without."""
        spare_tokens = self.spare_tokens(start)
        return self.spare_tokens(start, of_images=True) if spare_tokens < excess else spare_tokens

    def saving_tokens(self, cap: Cap) -> int:
        """The most that removing the images of a capped message can still save."""
        rank = bisect_left(self._parts, cap.at, key=attrgetter("at"))
        return max(cap.tokens - self._parts[rank].bare_tokens, 0)

    def share_first(self, excesses: Sequence[int], start: int, *, takes_all: bool) -> tuple[Cap, ...]:
        """The caps that remove the first of these numbers of tokens that can be removed; images only if none can.

        With `takes_all`, everything that can go is removed if none of them can. Empty if nothing helps.
        """
        for of_images in (False, True):
            all_tokens = [self.spare_tokens(start, of_images=of_images)] if takes_all else []
            shared = (self.share(excess, start, of_images=of_images) for excess in (*excesses, *all_tokens))
            if (caps := next((caps for caps in shared if caps is not None), None)) is not None:
                return caps
        return ()

    def share(self, excess: int, start: int, *, of_images: bool = False) -> tuple[Cap, ...] | None:
        """Caps for the messages from `start` on, oldest first, that together remove `excess` tokens.

        None if these messages cannot lose that many. Results are shortened first, the largest most; user messages only
        if that is not enough. With `of_images`, images are removed as well, oldest first.
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
    """Cap all parts at one level: the highest at which at least `excess` tokens are removed."""
    low, high = 0, max((part.tokens for part in parts), default=0)
    while low < high:
        level = (low + high + 1) // 2
        if sum(part.tokens - _cap(part, level) for part in parts) >= excess:
            low = level
        else:
            high = level - 1
    return tuple(Cap(part.at, _cap(part, low)) for part in parts if _cap(part, low) < part.tokens)


def _drop_images(parts: Sequence[_Part], excess: int) -> tuple[Cap, ...] | None:
    """Shorten all texts as far as allowed, then remove images from the oldest messages on."""
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
