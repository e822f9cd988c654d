"""What is taken out of old messages: results become one-line placeholders, and one-line markers replace images.

Laws: a placeholder is a function of its result, and of whether its call is repeated although it is too long to keep. It
names the result's size as the client sent it, before tidying and truncation. A result that is not longer than its
placeholder stays, and so does one that has loaded tools or is to be kept. A result that is written as text keeps its
header if it is short.

A marker is a function of its image alone and takes the image's place; nothing else of the message changes. The oldest
images go first: they cost most and are read least. Those of the task statement, of the newest step and of the last user
message are not removed here. An image that costs no more than its marker stays.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import msgspec

from trimtab.rules.conversation import Conversation, CountTokens, Message, Outcome, Role, Telling, replace_messages
from trimtab.rules.text.markers import mark_pruned, mark_pruned_again

_SPEAKERS = frozenset({Role.USER, Role.TOOL})


class ImageStop(msgspec.Struct, frozen=True):
    """Images of messages before `at` are removed, except those of `spared`: the last user message at that time."""

    at: int = 0
    spared: int = -1


NONE_REMOVED = ImageStop()
IMAGES_TELLING = Telling(
    "message", "Old images in {what} gave way to a line about each, {saved}; the newest images stay."
)


def saving_tokens(message: Message) -> int:
    """Tokens saved if markers replace the images of a message."""
    if not message.media or message.keep or message.role not in _SPEAKERS:
        return 0
    return sum(part.saving_tokens for part in message.media)


def remove_images(conversation: Conversation, places: Iterable[int]) -> Outcome:
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
    return sum(part.saving_tokens > 0 for part in message.media)


PLACEHOLDER_TOKENS = 40
"""The most that a pruned result costs, with its message frame. Results up to this size stay. Chosen: the placeholder's
text, its largest number and the frame cost some 30 tokens."""
TELLING = Telling(
    "tool result",
    "{what} became one line{each} that tells the size, {saved}; the calls stay, and the agent can make them again.",
)
Pruned = dict[int, tuple[Message, Message]]
"""By message index: the message, and the same message pruned."""


class Loops(NamedTuple):
    """Steps [start, stop) whose calls are repeated because their results are removed each time.

    spared: their results are not pruned.
    unfit: they are too long to keep, and their placeholders say so.
    """

    spared: tuple[tuple[int, int], ...] = ()
    unfit: tuple[tuple[int, int], ...] = ()


NO_LOOPS = Loops()


def prune_tool_results(
    conversation: Conversation,
    *,
    start: int,
    stop: int,
    count: CountTokens,
    known: Pruned | None = None,
    loops: Loops = NO_LOOPS,
) -> Outcome:
    """Replace every result in messages [start, stop) by its placeholder, except those of spared steps.

    `known` holds placeholders made earlier for the same messages; new ones are added to it.
    """
    known = {} if known is None else known
    new: dict[int, Message] = {}
    stays = {index for step in loops.spared for index in range(*step)}
    again = {index for step in loops.unfit for index in range(*step)}
    for index in range(start, stop):
        message = conversation.messages[index]
        if index in stays or not is_prunable(message):
            continue
        before, pruned = known.get(index, (None, message))
        if before is not message:
            pruned = _prune(message, count, is_again=index in again)
            known[index] = message, pruned
        if pruned is not message:
            new[index] = pruned
    return replace_messages(conversation, new, "prune", f"{len(new)} tool results before message {stop}")


def is_prunable(message: Message) -> bool:
    """Whether this is a tool result that is longer than its placeholder, and nothing says that it must stay."""
    return message.role is Role.TOOL and message.tokens > PLACEHOLDER_TOKENS and not (message.keep or message.loads)


def _prune(message: Message, count: CountTokens, *, is_again: bool) -> Message:
    text = (mark_pruned_again if is_again else mark_pruned)(message.original_tokens)
    saved = sum(map(count, message.texts)) + sum(part.tokens for part in message.media) - count(text)
    header = message.header
    if header and message.tokens - saved > PLACEHOLDER_TOKENS:
        header, saved = "", saved + count(header)
    return replace(message.shorten((text,), saved), media=(), header=header) if saved > 0 else message
