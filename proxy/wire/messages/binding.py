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
from proxy.wire.messages.request import FORM, find_system_edit
from proxy.wire.transcript.body import find_elements
from proxy.wire.transcript.outside import Edit, replace_outside
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
    within = Span(array.start, array.stop)
    place = find_member(request.body, _KEY, within)
    if place is None:
        written = _add(pieces)
    elif (value := _extend(request.body[place.start : place.stop])) is not None:
        done = find_system_edit(request, after, within)
        written = replace_outside(request.body, array.start, pieces, Edit(place, value), done)
    else:
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


def _extend(value: bytes) -> bytes | None:
    """The value of `thinking` with the setting; None if that is off, no object, or has a setting."""
    if value[:1] != b"{" or b'"block_binding"' in value or b'"disabled"' in value:
        return None
    rest = value[1:].lstrip()
    return b"{" + _BINDING + (b"" if rest[:1] == b"}" else b",") + rest
