"""Tells Anthropic's API that it may drop thinking that was written behind other messages than are sent now.

Newer models bind each block of thinking to everything before it. After a cut, the thinking behind the cut no longer
fits what is before it, and the API refuses the request. With this setting it drops such blocks instead. A request that
turns thinking off cannot have the setting. So the blocks are left out, all of them, as the API demands.

Law: only a request of a session in which something before an answer was changed is touched, and of it only the member
`thinking` and one header, or the blocks of thinking. What was asked for once is asked for in all later requests of the
session. A setting of the client stays, and the API's refusal of it is the client's.

Source: Anthropic's pages on preserved thinking and prefix checks.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from trimtab.proxy.wire.codec import Request
from trimtab.proxy.wire.json.decode import DECODE_ERRORS, decode_member, read_members
from trimtab.proxy.wire.json.spans import Span, find_member, splice
from trimtab.proxy.wire.members import Adapted
from trimtab.proxy.wire.messages.blocks import split_blocks
from trimtab.proxy.wire.messages.message import THINKING
from trimtab.proxy.wire.messages.request import find_system_edit
from trimtab.proxy.wire.routing import binds_thinking
from trimtab.proxy.wire.transcript.body import Edit, replace_outside
from trimtab.rules.conversation import Conversation, Decision
from trimtab.rules.tokens.tool_schemas import as_schema

HEADER, BETA = "anthropic-beta", "thinking-binding-controls-2026-08-01"
_KEY = b'"thinking"'
_BINDING = b'"block_binding":{"prefix_mismatch_behavior":"drop_block"}'
_DEFAULT = b'{"type":"adaptive",' + _BINDING + b"}"
"""The setting for a request without the member: such models think even if a request does not say so."""
_TAKES_SETTING = frozenset({"adaptive", "enabled", None})
_SILENT = b'[{"type":"text","text":"(no answer)"}]'
"""What stands for an answer that was only thinking: the API refuses a message without content."""


def bind_thinking(request: Request, before: Conversation, after: Conversation, pieces: tuple[bytes, ...]) -> Adapted:
    """The body with the setting, if its model binds thinking and the client's transcript `before` has any.

    Raises UndecodableError if the elements of the transcript cannot be found in the body.
    """
    if not is_bound(request, before):
        return Adapted(pieces)
    array = request.find_array()
    within = Span(array.start, array.stop)
    place = find_member(request.body, _KEY, within)
    value = b"" if place is None else request.body[place.start : place.stop]
    if is_off(value):
        decision = Decision("thinking", "thinking that no longer fits is left out", 0, 0, 0, 0)
        return Adapted(_leave_out(request, before, after, array.elements), decisions=(decision,))
    if (allowed := allow_drops(value)) is None:
        return Adapted(pieces)
    if place is None:
        written = _add(pieces)
    else:
        done = find_system_edit(request, after, within)
        written = replace_outside(request.body, array.start, pieces, Edit(place, allowed), done)
    decision = Decision("thinking", "the server may drop thinking that no longer fits", 0, 0, 0, 0)
    return Adapted(written, ((HEADER, BETA),), (decision,))


def is_bound(request: Request, transcript: Conversation) -> bool:
    """Whether a request's model binds its thinking to what is before it, there is any, and its upstream may be told."""
    return (
        request.takes_binding
        and binds_thinking(request.model)
        and any(message.has_reasoning for message in transcript.messages)
    )


def is_off(value: bytes) -> bool:
    return _read(value).get("type") == "disabled"


def allow_drops(value: bytes) -> bytes | None:
    """A value of `thinking`, which may be missing, with the setting; None if it cannot have it, or has one."""
    if not value:
        return _DEFAULT
    setting = _read(value)
    kind = setting.get("type")
    if value[:1] != b"{" or "block_binding" in setting or not (kind is None or isinstance(kind, str)):
        return None
    if kind not in _TAKES_SETTING:
        return None
    rest = value[1:].lstrip()
    return b"{" + _BINDING + (b"" if rest[:1] == b"}" else b",") + rest


def _read(value: bytes) -> dict[str, Any]:
    try:
        return as_schema(decode_member(msgspec.Raw(value or b"null")))
    except DECODE_ERRORS:
        return {}


def drop_thinking(raw: bytes) -> bytes:
    if b"thinking" not in raw:
        return raw
    members = read_members(raw)
    content = members.get("content", msgspec.Raw(b"null"))
    if bytes(members.get("role", b"")) != b'"assistant"' or bytes(content)[:1] != b"[":
        return raw
    blocks = split_blocks(raw, content)
    kept = [block.raw for block in blocks if block.kind not in THINKING]
    if len(kept) == len(blocks):
        return raw
    left = b"[" + b",".join(kept) + b"]" if kept else _SILENT
    return msgspec.json.encode({**members, "content": msgspec.Raw(left)})


def bind_question(request: Request, prefix: Conversation, members: dict[str, msgspec.Raw]) -> Sequence[bytes]:
    """The elements to ask behind. Thinking in them that no longer fits may be dropped, as in the client's own request.

    Changes the setting in `members`. Raises one of DECODE_ERRORS.
    """
    if not request.breaks_past or not is_bound(request, prefix):
        return request.raws
    setting = bytes(members.get("thinking", b""))
    if is_off(setting):
        return [drop_thinking(raw) for raw in request.raws]
    if (allowed := allow_drops(setting)) is not None:
        members["thinking"] = msgspec.Raw(allowed)
    return request.raws


def _leave_out(request: Request, before: Conversation, after: Conversation, elements: list[Span]) -> tuple[bytes, ...]:
    edits = [(span, drop_thinking(raw)) for span, raw in zip(elements, request.raws, strict=True)]
    left = request.codec.read(splice(request.body, edits))
    return request.codec.encode(replace(left, model=request.model, cache=request.cache), before, after)


def _add(pieces: tuple[bytes, ...]) -> tuple[bytes, ...]:
    last = pieces[-1]
    at = last.rindex(b"}")
    return (*pieces[:-1], last[:at] + b"," + _KEY + b":" + _DEFAULT + last[at:])
