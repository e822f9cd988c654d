"""Images: one-line markers replace them, oldest first. Old images cost most and are read least.

Law: a marker is a function of its image alone and takes the image's place; nothing else of the message changes. Images
of the task statement, of the newest step and of the last user message are not removed here. An image that costs no
more than its marker stays.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rules.conversation import Conversation, Message, Outcome, Role, Telling, replace_messages

_SPEAKERS = frozenset({Role.USER, Role.TOOL})


@dataclass(frozen=True, slots=True)
class ImageStop:
    """Images of messages before `at` are removed, except those of `spared`: the last user message at that time."""

    at: int = 0
    spared: int = -1


NONE_REMOVED = ImageStop()
TELLING = Telling("message", "Old images in {what} gave way to a line about each, {saved}; the newest images stay.")


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
