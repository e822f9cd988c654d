"""Counts what a server no longer reads: messages before the item in which it has compacted them itself.

Law: such messages are forwarded unchanged; only their counts change.
"""

from collections.abc import Collection
from dataclasses import replace
from operator import attrgetter

from rules.conversation import Message, Role

_KEEPS_BEFORE = attrgetter("keeps_before")


def discount_compacted(messages: tuple[Message, ...], read: Collection[Role] = ()) -> tuple[Message, ...]:
    """The same messages; those before the last one that `keeps_before` cost nothing.

    read: roles of messages that the server reads all the same.
    """
    if not any(map(_KEEPS_BEFORE, messages)):
        return messages
    last = max(at for at, message in enumerate(messages) if message.keeps_before)
    early = [message if message.speaker in read else replace(message, tokens=0) for message in messages[:last]]
    return (*early, *messages[last:])
