"""Finds the start of the step that the model has not answered yet, without the program's own sums."""

from collections.abc import Sequence

from trimtab.rules.conversation import Message, Role
from trimtab.rules.window.sums import MAX_OPEN_WORDS


def find_open_step(messages: Sequence[Message]) -> int:
    """The model's last message if results follow it; else the first of the newest user messages after it."""
    answered = max((index for index, one in enumerate(messages) if one.role is Role.ASSISTANT), default=0)
    behind = range(answered + 1, len(messages))
    unseen = next((index for index in behind if messages[index].role is Role.TOOL), len(messages))
    words = range(answered + 1, unseen)[-MAX_OPEN_WORDS:]
    return words.start if words else answered
