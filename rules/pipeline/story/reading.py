"""A message as a text to read: for a person who wants to see what it says.

Law: a function of the message alone.
"""

from rules.conversation import Media, Message


def read_message(message: Message) -> str:
    """The texts of a message, a line for each image or file, and a line for each tool call."""
    lines = [*message.as_said().texts, *map(_name_part, message.media)]
    lines += [f"{call.name} {call.arguments}" for call in message.tool_calls]
    return "\n".join(lines)


def is_same(one: Message, other: Message) -> bool:
    """Whether two messages with one origin say the same. They may be different objects, of different requests."""
    return one is other or (one.texts, one.media, one.tokens) == (other.texts, other.media, other.tokens)


def _name_part(part: Media) -> str:
    if part.is_removed:
        return part.line
    return f"({'image' if part.line else 'attachment'} of {part.tokens} tokens)"
