"""Tells Anthropic's API that it may drop thinking that was written behind other messages than are sent now.

Newer models bind each block of thinking to everything before it. After a cut, the thinking behind the cut no longer
fits what is before it, and the API refuses the request. With this setting it drops such blocks instead.

Law: only a request whose transcript was changed is touched, and only its member `thinking` and one header. A setting of
the client stays.

Source: Anthropic's page on preserved thinking.
"""

import re

from proxy.wire.codec import Adapted, Request
from proxy.wire.json.spans import Span, find_member
from proxy.wire.messages.request import FORM
from proxy.wire.transcript.body import find_elements
from rules.conversation import Conversation, Decision

HEADER, BETA = "anthropic-beta", "thinking-binding-controls-2026-08-01"
FIRST_BOUND = (5, 1)
"""The first version of a model that binds its thinking. Source: Anthropic's page on prefix checks. It names Fable and
Mythos 5.1 and 5.2, and Opus, Sonnet and Haiku 5.5."""
_VERSION = re.compile(r"claude-[a-z]+-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
"""A model's version, wherever a gateway puts the name. A date after the name is no version."""
_KEY = b'"thinking"'
_BINDING = b'"block_binding":{"prefix_mismatch_behavior":"drop_block"}'
_ADDED = b',"thinking":{"type":"adaptive",' + _BINDING + b"}"


def bind_thinking(request: Request, after: Conversation, pieces: tuple[bytes, ...]) -> Adapted:
    """The changed body with the setting, if its model binds thinking and there is any in it.

    Raises UndecodableError if the elements of the transcript cannot be found in the body.
    """
    if not binds_thinking(request.model) or not any(message.has_reasoning for message in after.messages):
        return Adapted(pieces)
    beginning = request.beginning
    array = find_elements(FORM, request.body, request.raws) if beginning is None else beginning.array
    place = find_member(request.body, _KEY, Span(array.start, array.stop))
    written = _add(pieces) if place is None else _extend(request.body, place, array.start, pieces)
    if written is None:
        return Adapted(pieces)
    decision = Decision("thinking", "the server may drop thinking that no longer fits", 0, 0, 0, 0)
    return Adapted(written, ((HEADER, BETA),), (decision,))


def binds_thinking(model: str) -> bool:
    """Whether a model of this name binds its thinking to what is before it."""
    found = _VERSION.search(model)
    return found is not None and (int(found[1]), int(found[2] or 0)) >= FIRST_BOUND


def _add(pieces: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The body with a member `thinking`: such models think even if a request does not say so."""
    last = pieces[-1]
    at = last.rindex(b"}")
    return (*pieces[:-1], last[:at] + _ADDED + last[at:])


def _extend(body: bytes, place: Span, array_start: int, pieces: tuple[bytes, ...]) -> tuple[bytes, ...] | None:
    """The body with the setting in its member `thinking`; None if that is off, no object, or has a setting."""
    value = body[place.start : place.stop]
    if value[:1] != b"{" or b'"block_binding"' in value or b'"disabled"' in value:
        return None
    rest = value[1:].lstrip()
    value = b"{" + _BINDING + (b"" if rest[:1] == b"}" else b",") + rest
    if place.start < array_start:  # the first piece begins like the body, the last one ends like it
        first = pieces[0]
        return (first[: place.start] + value + first[place.stop :], *pieces[1:])
    last, behind = pieces[-1], len(body) - place.stop
    return (*pieces[:-1], last[: len(last) - (len(body) - place.start)] + value + last[len(last) - behind :])
