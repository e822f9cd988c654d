"""Images give way to one line each, the oldest first: they are what is read least and costs most.

Law: a line is a function of its image alone, and stands in the image's place; nothing else of the message changes.
Images of the task statement, of the newest step, and of the user's last words are not removed here. An image that is
no larger than its line stays.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rules.conversation import Conversation, Decision, Message, Outcome, Role

_SPEAKERS = frozenset({Role.USER, Role.TOOL})


@dataclass(frozen=True, slots=True)
class ImageStop:
    """Images of messages before `at` are lines, but for those of message `spared`: the user's last words then."""

    at: int = 0
    spared: int = -1


NONE_REMOVED = ImageStop()


def saving_tokens(message: Message) -> int:
    """What is saved if lines stand in the places of a message's images."""
    if not message.media or message.role not in _SPEAKERS:
        return 0
    return sum(part.saving_tokens for part in message.media)


def remove_images(conversation: Conversation, places: Iterable[int]) -> Outcome:
    """Write lines in the places of the images of these messages."""
    messages = list(conversation.messages)
    changed: list[int] = []
    number = 0
    for index in places:
        if saving_tokens(messages[index]):
            number += _count(messages[index])
            messages[index] = drop_images(messages[index])
            changed.append(index)
    if not changed:
        return Outcome(conversation)
    outcome = conversation.edit(messages)
    reason = f"{number} images of {len(changed)} messages"
    decision = Decision("images", reason, conversation.tokens, outcome.tokens, len(changed), min(changed))
    return Outcome(outcome, (decision,))


def drop_images(message: Message, excess_tokens: int | None = None) -> Message:
    """A message without its oldest images, so that `excess_tokens` are saved; without all of them if that is None."""
    media = list(message.media)
    saved = 0
    for index, part in enumerate(media):
        if excess_tokens is not None and saved >= excess_tokens:
            break
        if part.saving_tokens:
            saved += part.saving_tokens
            media[index] = part.remove()
    return replace(message.shorten(message.texts, saved), media=tuple(media)) if saved else message


def _count(message: Message) -> int:
    return sum(part.saving_tokens > 0 for part in message.media)


class ImageSums:
    """Where images stand in a transcript, and what is saved without them: append-only, but for the newest messages."""

    __slots__ = ("_numbers", "_places", "_saved")

    def __init__(self) -> None:
        self._places = array("q")  # the messages that hold some
        self._saved = array("q", (0,))
        self._numbers = array("q", (0,))

    def add(self, index: int, message: Message) -> int:
        """The next message; returns what is saved without its images."""
        saving = saving_tokens(message)
        if saving:
            self._places.append(index)
            self._saved.append(self._saved[-1] + saving)
            self._numbers.append(self._numbers[-1] + _count(message))
        return saving

    def __bool__(self) -> bool:
        return bool(self._places)

    @property
    def size_bytes(self) -> int:
        """What the sums hold in memory."""
        return 24 * len(self._places)

    def saved(self, start: int, stop: int) -> int:
        """Tokens that are saved without the images of messages [start, stop)."""
        if not self._places or stop <= start:
            return 0
        return self._saved[bisect_left(self._places, stop)] - self._saved[bisect_left(self._places, start)]

    def saved_by(self, start: int, images: ImageStop) -> int:
        """Tokens that are saved of the messages from `start` on where images are removed so."""
        saved = self.saved(start, images.at)
        return saved - self.saved(images.spared, images.spared + 1) if start <= images.spared < images.at else saved

    def number(self, start: int, stop: int) -> int:
        """How many images stand in messages [start, stop)."""
        if not self._places or stop <= start:
            return 0
        return self._numbers[bisect_left(self._places, stop)] - self._numbers[bisect_left(self._places, start)]

    def find_newest(self, number: int) -> int:
        """Where the message stands that holds the last but `number` - 1 of all images; behind all of them for 0."""
        if not self._places:
            return 0
        rank = bisect_left(self._numbers, max(self._numbers[-1] - number + 1, 1))
        return self._places[rank - 1] if rank <= len(self._places) else self._places[-1] + 1

    def find_stop(self, start: int, tokens: int) -> int:
        """Behind which message from `start` on so many tokens are saved.

        Behind the last that holds images if not even that is enough.
        """
        if not self._places:
            return 0
        rank = bisect_left(self._saved, self._saved[bisect_left(self._places, start)] + tokens)
        return self._places[min(max(rank, 1), len(self._places)) - 1] + 1

    def shorten(self, at: int, saving: int) -> int:
        """Message `at` now saves no more than `saving` without its images; returns by how much that is less."""
        rank = bisect_left(self._places, at)
        less = max(self.saved(at, at + 1) - saving, 0)
        if less:
            for index in range(rank + 1, len(self._saved)):
                self._saved[index] -= less
        return less
