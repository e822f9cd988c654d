"""Calls and results of a recorded chat, paired with ids that are valid and unique in any dialect.

Law: the ids of a message depend only on it and on the messages before it, so a longer transcript keeps them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Wire = dict[str, Any]

_ODD = re.compile(r"[^a-zA-Z0-9_-]")
MAX_ID_CHARS = 56
"""Leaves room for a number within the 64 characters that OpenAI allows."""


class NotConvertibleError(ValueError):
    """A transcript that no other dialect can express. The message says why."""


@dataclass(frozen=True, slots=True)
class Paired:
    """A chat message, with the valid ids of its calls, or of the call that it answers."""

    message: Wire
    ids: tuple[str, ...]


def pair(messages: Sequence[Wire]) -> Iterator[Paired]:
    """Each message with its ids, in order. Repeated, empty and odd ids get others.

    A result belongs to the newest call with its id that has none yet. A result without such a call, a call without a
    result, and a result that is not right behind its calls raise NotConvertibleError.
    """
    taken: set[str] = set()
    waiting: list[tuple[str, str]] = []
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            answered = next((one for one in waiting if one[0] == (message.get("tool_call_id") or "")), None)
            if answered is None:
                why = f"message {index}: a result without its call right before it"
                raise NotConvertibleError(why)
            waiting.remove(answered)
            yield Paired(message, (answered[1],))
            continue
        if waiting:
            why = f"message {index}: the call {waiting[0][0]!r} before it has no result"
            raise NotConvertibleError(why)
        originals = [call.get("id") or "" for call in message.get("tool_calls") or ()]
        ids = [_name(original, taken) for original in originals]
        waiting = list(zip(originals, ids, strict=True))
        yield Paired(message, tuple(ids))
    if waiting:
        why = f"at the end: the call {waiting[0][0]!r} has no result"
        raise NotConvertibleError(why)


def _name(original: str, taken: set[str]) -> str:
    valid = _ODD.sub("_", original)[:MAX_ID_CHARS] or "call"
    name, number = valid, 1
    while name in taken:
        number += 1
        name = f"{valid}_{number}"
    taken.add(name)
    return name


def parts_of(message: Wire) -> list[Wire]:
    """The parts of a message's content that are not blank texts. A string is one part of text."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        content = [{"type": "text", "text": content or ""}]
    return [part for part in content if part.get("type") != "text" or part["text"].strip()]


def split_leading(messages: Sequence[Wire]) -> tuple[list[Wire], list[Wire]]:
    """The leading system and developer messages, and the others."""
    count = next(
        (rank for rank, one in enumerate(messages) if one["role"] not in {"system", "developer"}), len(messages)
    )
    return list(messages[:count]), list(messages[count:])
