"""Images: one-line markers replace them, oldest first. Old images cost most and are read least.

Law: a marker is a function of its image alone and takes the image's place; nothing else of the message changes. Images
of the task statement, of the newest step and of the last user message are not removed here. An image that costs no
more than its marker stays.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rules.conversation import Conversation, Message, Outcome, Role, replace_messages

_SPEAKERS = frozenset({Role.USER, Role.TOOL})


@dataclass(frozen=True, slots=True)
class ImageStop:
    """Images of messages before `at` are removed, except those of `spared`: the last user message at that time."""

    at: int = 0
    spared: int = -1


NONE_REMOVED = ImageStop()


def saving_tokens(message: Message) -> int:
    """Tokens saved if markers replace the images of a message."""
    if not message.media or message.role not in _SPEAKERS:
        return 0
    return sum(part.saving_tokens for part in message.media)


def remove_images(conversation: Conversation, places: Iterable[int]) -> Outcome:
    """Replace the images of these messages by markers."""
    found = {index: conversation.messages[index] for index in places}
    changed = {index: message for index, message in found.items() if saving_tokens(message)}
    reason = f"{sum(map(count_images, changed.values()))} images of {len(changed)} messages"
    new = {index: drop_images(message) for index, message in changed.items()}
    return replace_messages(conversation, new, "images", reason)


def drop_images(message: Message, excess_tokens: int | None = None) -> Message:
    """The message without its oldest images, so that `excess_tokens` are saved; None removes all."""
    media = list(message.media)
    saved = 0
    for index, part in enumerate(media):
        if excess_tokens is not None and saved >= excess_tokens:
            break
        if part.saving_tokens:
            saved += part.saving_tokens
            media[index] = part.remove()
    return replace(message.shorten(message.texts, saved), media=tuple(media)) if saved else message


def count_images(message: Message) -> int:
    """The number of images of a message that a marker may replace."""
    return sum(part.saving_tokens > 0 for part in message.media)


class ImageSums:
    """Which messages hold images, and what removing them saves. Append-only, except for the newest messages."""

    __slots__ = ("_numbers", "_places", "_saved")

    def __init__(self) -> None:
        self._places = array("q")  # indexes of the messages that hold images
        self._saved = array("q", (0,))
        self._numbers = array("q", (0,))

    def add(self, index: int, message: Message) -> int:
        """Add the next message; return the tokens that removing its images saves."""
        saving = saving_tokens(message)
        if saving:
            self._places.append(index)
            self._saved.append(self._saved[-1] + saving)
            self._numbers.append(self._numbers[-1] + count_images(message))
        return saving

    def __bool__(self) -> bool:
        return bool(self._places)

    @property
    def size_bytes(self) -> int:
        """Approximate memory of this object in bytes."""
        return 24 * len(self._places)

    def saved(self, start: int, stop: int) -> int:
        """Tokens saved by removing the images of messages [start, stop)."""
        if not self._places or stop <= start:
            return 0
        return self._saved[bisect_left(self._places, stop)] - self._saved[bisect_left(self._places, start)]

    def saved_by(self, start: int, images: ImageStop) -> int:
        """Tokens that `images` saves in the messages from `start` on."""
        saved = self.saved(start, images.at)
        return saved - self.saved(images.spared, images.spared + 1) if start <= images.spared < images.at else saved

    def number(self, start: int, stop: int) -> int:
        """Number of images in messages [start, stop)."""
        if not self._places or stop <= start:
            return 0
        return self._numbers[bisect_left(self._places, stop)] - self._numbers[bisect_left(self._places, start)]

    def find_newest(self, number: int) -> int:
        """Index of the message that holds the oldest of the newest `number` images; for 0, one past the last image."""
        if not self._places:
            return 0
        rank = bisect_left(self._numbers, max(self._numbers[-1] - number + 1, 1))
        return self._places[rank - 1] if rank <= len(self._places) else self._places[-1] + 1

    def find_stop(self, start: int, tokens: int) -> int:
        """Index up to which images must be removed, from `start` on, to save this many tokens.

        If all images together save less, one past the last message that holds images.
        """
        if not self._places:
            return 0
        rank = bisect_left(self._saved, self._saved[bisect_left(self._places, start)] + tokens)
        return self._places[min(max(rank, 1), len(self._places)) - 1] + 1

    def shorten(self, at: int, saving: int) -> int:
        """Let removing the images of message `at` save at most `saving` from now on; return the difference."""
        rank = bisect_left(self._places, at)
        less = max(self.saved(at, at + 1) - saving, 0)
        if less:
            for index in range(rank + 1, len(self._saved)):
                self._saved[index] -= less
        return less
