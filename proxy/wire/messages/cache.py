"""Where a cut leaves a marker of the prompt cache.

A client puts its newest marker at the end of its transcript and moves it with each request. Anthropic's API looks back
at most 20 blocks from a marker for what it has cached. A cut removes more, so the first request after it would find
nothing, and the summary would be cached only by chance. So the summary's last block gets a marker of its own.

Law: a function of the request and of the transcript that is forwarded. The marker is only added if the client itself
marks messages, or lets the API mark the last one. There are never more than four, and it stays in place as long as the
cut does. It is a copy of the client's next marker, so entries of one hour stay before those of five minutes.

Source: Anthropic's page on prompt caching.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import msgspec

from proxy.wire.json.repair import try_decode
from rules.conversation import Conversation, Message, Role
from rules.text.markers import INTRODUCTION

MAX_MARKERS = 4
"""Markers that a request may have. Source: Anthropic's page on prompt caching; the API refuses a fifth."""
_KEY = b'"cache_control"'
_MARKER = re.compile(rb'"cache_control"[ \t\r\n]{0,64}+:[ \t\r\n]{0,64}+(\{[^{}]{0,256}\})')
"""A marker with its value. A text cannot match, because quotes in a text are escaped."""
_HEADS = ("tools", "system")
"""Members with markers before the messages, in the order of the prompt."""


def place_marker(outside: Mapping[str, msgspec.Raw], before: Conversation, after: Conversation) -> Conversation:
    """The conversation `after`, whose summary message takes in the marker for its end, if it must have one.

    outside: the members of the body. No other message takes in a marker: those of the removed messages are replaced by
    that one.
    """
    at = _find_summary(after.messages)
    messages = [replace(message, taken_in=()) if message.taken_in else message for message in after.messages]
    if at is not None:
        messages[at] = mark_end(outside, messages, at, before.messages)
    return after.edit(messages)


def mark_end(
    outside: Mapping[str, msgspec.Raw], messages: Sequence[Message], at: int, originals: Iterable[Message]
) -> Message:
    """Message `at`, with a marker for its end if the client marks messages and fewer than four are forwarded.

    originals: the client's own messages.
    """
    own = b'"cache_control":' + bytes(outside.get("cache_control", b"null"))
    heads = [bytes(outside[name]) for name in _HEADS if name in outside]
    earlier = _find_all(chain(heads, *map(_list_raws, messages[: at + 1])))
    later = _find_all(chain(*map(_list_raws, messages[at + 1 :]), (own,)))
    if len(earlier) + len(later) >= MAX_MARKERS:
        return messages[at]
    copied = later[:1] or _find_all(message.raw for message in originals)[-1:]
    return replace(messages[at], taken_in=tuple(b'{"cache_control":%b}' % value for value in copied))


def _find_summary(messages: Iterable[Message]) -> int | None:
    """The index of the message that a rule made of the messages before a cut; None if nothing was cut."""
    made = (index for index, message in enumerate(messages) if message.edited and _is_summary(message))
    return next(made, None)


def _is_summary(message: Message) -> bool:
    return message.role is not Role.TOOL and any(text.startswith(INTRODUCTION) for text in message.texts)


def _list_raws(message: Message) -> Iterator[bytes]:
    """The JSON of a message that may have markers: its own, what it takes in, and the parts that a rule added."""
    yield from (message.raw, *message.taken_in)
    if message.edited:
        yield from (part.raw for part in message.media if part.raw not in message.raw)


def _find_all(raws: Iterable[bytes]) -> list[bytes]:
    """The values of all markers, in order."""
    found = (match[1] for raw in raws if _KEY in raw for match in _MARKER.finditer(raw))
    return [value for value in found if _is_marker(value)]


def _is_marker(value: bytes) -> bool:
    marker = try_decode(value)
    return isinstance(marker, dict) and marker.get("type") == "ephemeral"
