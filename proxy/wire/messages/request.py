"""Splits the body of a request into the elements of `messages`, decodes and counts them, and writes the body again.

Law: everything that no rule touched keeps its bytes: elements, blocks, the white space between elements, and all other
members. `system` is a message of the conversation. If a rule has shortened its texts, only these change in it.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from trimtab.proxy.wire.codec import Codec, Counting, Request
from trimtab.proxy.wire.content.cache_help import Helped, find_summary
from trimtab.proxy.wire.content.tool_lists import ToolList
from trimtab.proxy.wire.dialect import find_array, find_edit, take_off_outside, write_outside, write_transcript
from trimtab.proxy.wire.json.decode import DECODE_ERRORS, decode_member, read_members
from trimtab.proxy.wire.json.spans import Span
from trimtab.proxy.wire.messages.cache import Markers, drop_taken_in, find_client_markers, mark_end
from trimtab.proxy.wire.messages.message import decode_system
from trimtab.proxy.wire.messages.write import shares_element, write_element
from trimtab.proxy.wire.transcript.beginnings import Begun
from trimtab.proxy.wire.transcript.body import Edit, Form, read_outside, replace_outside, split_body
from trimtab.proxy.wire.transcript.decoding import discount_compacted
from trimtab.rules.conversation import Conversation, Message, Shape
from trimtab.rules.tokens.tool_schemas import as_schema

_THINKS = frozenset({"enabled", "adaptive"})
SHAPE = Shape(has_system_messages=False, joins_systems=True, seals_reasoning=True)
SHAPE_WITH_THINKING = replace(SHAPE, alternates=False)
"""With thinking, the last message of an assistant must begin with thinking, which nobody can write for the model. So no
line of an assistant is inserted. Anthropic's API joins user messages that follow each other. Source: its pages on
extended thinking and on the Messages API. Between the other messages, it accepts no two system messages in a row, and
after one only an answer or the end. Source: its page on mid-conversation system messages."""
COUNTED = frozenset({"messages", "system", "tools", "tool_choice", "output_config", "output_format"})
WITHOUT_TOKENS = frozenset(
    {
        "model", "stream", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier",
        "cache_control", "thinking", "speed", "inference_geo", "diagnostics", "billing_policy", "user_profile_id",
        "fallbacks", "fallback_credit_token", "anthropic_version", "anthropic_beta", "betas",
    }
)  # fmt: skip
"""Members that no server puts into the prompt. Source: Anthropic's and Bedrock's API references. Any other member may
be part of the prompt or change it: `mcp_servers`, `container`, `context_management`, and future ones."""


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    model: Any = None
    stream: Any = None
    max_tokens: Any = None
    system: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    tool_choice: msgspec.Raw = msgspec.Raw()
    output_config: msgspec.Raw = msgspec.Raw()
    output_format: msgspec.Raw = msgspec.Raw()
    thinking: Any = None
    thread: msgspec.Raw = msgspec.Raw()


FORM = Form(
    b'"messages"',
    msgspec.json.Decoder(_Body).decode,
    lambda body: body.messages,
    lambda body: (body.system, body.tools),
)


def read_request(codec: Codec, body: bytes, begun: Begun | None = None, *, max_chars: int | None = None) -> Request:
    """Split a body into its elements without decoding them; see `split_body`. Raises UndecodableError.

    `fixed` is the JSON of `system`, `tools`, `tool_choice`, `output_config`, `output_format` and `thread`.
    """
    decoded, raws, beginning = split_body(FORM, body, begun, max_chars=max_chars)
    fixed = (
        decoded.system,
        decoded.tools,
        decoded.tool_choice,
        decoded.output_config,
        decoded.output_format,
        decoded.thread,
    )
    thinking = as_schema(decoded.thinking).get("type")
    return Request(
        codec=codec,
        body=body,
        raws=raws,
        model=decoded.model if isinstance(decoded.model, str) else "",
        stream=decoded.stream is True,
        max_tokens=decoded.max_tokens if type(decoded.max_tokens) is int else None,
        fixed=tuple(b"" if raw == b"null" else raw for raw in map(bytes, fixed)),
        is_reasoning=isinstance(thinking, str) and thinking in _THINKS,
        asks_usage=True,  # streams always report it
        beginning=beginning,
    )


def list_tools(request: Request) -> tuple[ToolList, ...]:
    """The list of tools."""
    return (ToolList(b'"tools"', request.fixed[1], request.fixed[2], (b'"tool_choice"',)),)


_MARK = b"system:"
"""Begins the key under which a decoded system message is known, so that it is not taken for an element."""


def list_system(request: Request) -> list[bytes]:
    """The system message, marked."""
    system = request.fixed[0]
    return [_MARK + system] if system not in (b"", b'""', b"[]") else []


def decode_marked_system(counting: Counting, marked: bytes) -> tuple[Message, ...]:
    """The message of what `list_system` has listed."""
    return decode_system(counting, marked[len(_MARK) :])


def _continues(request: Request) -> bool:
    """Whether the upstream holds the messages before these. Raises one of DECODE_ERRORS."""
    thread = request.fixed[-1]
    return b"continue" in thread and as_schema(decode_member(msgspec.Raw(thread))).get("type") == "continue"


COUNTED_FIXED = slice(1, -1)
"""`Request.fixed` without `system`, which may change with each request, and `thread`."""


def look_at(request: Request, messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], Shape, bool]:
    """Anthropic's API ignores what is before its compaction. Source: its page on compaction."""
    shape = SHAPE_WITH_THINKING if request.is_reasoning else SHAPE
    return discount_compacted(messages), shape, _continues(request)


def knows_members(members: Mapping[str, msgspec.Raw]) -> bool:
    """Whether each member of a body is counted, or is known to cost no tokens. Raises one of DECODE_ERRORS."""
    unknown = members.keys() - COUNTED - WITHOUT_TOKENS
    return not unknown or (unknown == {"context_management"} and _only_clears_thinking(members[unknown.pop()]))


def _only_clears_thinking(management: msgspec.Raw) -> bool:
    """Whether the server edits only thinking. Messages with thinking are not used to calibrate anyway."""
    edits = as_schema(decode_member(management)).get("edits")
    kinds = [as_schema(edit).get("type") for edit in edits] if isinstance(edits, list) else [None]
    return all(isinstance(kind, str) and kind.startswith("clear_thinking_") for kind in kinds)


def find_markers(request: Request) -> Markers:
    """The request's cache markers."""
    outside: dict[str, msgspec.Raw] = {}
    with suppress(*DECODE_ERRORS):  # if the body has to be repaired, only the markers of its messages are found
        outside = read_outside(request.body, request.beginning)
    return find_client_markers(outside, request.raws)


def place_marker(request: Request, after: Conversation) -> Conversation:
    """The conversation to write, with a marker at the end of its summary, if there must be one."""
    plain, at = drop_taken_in(after), find_summary(after.messages)
    is_wanted = "cache_control" in request.cache.adds
    return plain if at is None else mark_end(find_markers(request), plain, at, is_wanted=is_wanted)


def help_cache(request: Request, after: Conversation, pieces: tuple[bytes, ...]) -> Helped:
    """The body itself. `encode_request` has put the marker there; this finds out whether the client asked for it."""
    at = find_summary(after.messages) if "cache_control" in request.cache.adds else None
    if at is None:
        return Helped(pieces)
    markers, plain = find_markers(request), drop_taken_in(after)
    is_added = mark_end(markers, plain, at, is_wanted=True) is not plain
    is_own = bool(markers.placed or markers.automatic)
    return Helped(pieces, ("cache_control",) if is_added and not is_own else ())


def encode_request(request: Request, before: Conversation, after: Conversation) -> tuple[bytes, ...]:
    """The body with the transcript `after`, in pieces. If `after` is the object `before`: the unchanged body.

    Raises UndecodableError if the key of the messages is written with escapes.
    """
    if after is before:
        return (request.body,)
    array = find_array(FORM, request)
    marked, write = place_marker(request, take_off_outside(after)), partial(write_element, request.raws)
    pieces = write_transcript(request, array, take_off_outside(before), marked, write, shares_element)
    edit = find_system_edit(request, after, Span(array.start, array.stop))
    return pieces if edit is None else replace_outside(request.body, array.start, pieces, edit)


def write_system(after: Conversation) -> bytes | None:
    """The value of `system` with shortened texts; None if no rule has changed it."""
    return write_outside(after, lambda raw: bytes(read_members(b'{"content":%b}' % raw)["content"]))


def find_system_edit(request: Request, after: Conversation, array: Span) -> Edit | None:
    """The new value of `system`; None if no rule has changed it. Raises UndecodableError if its place is not found."""
    value = write_system(after)
    return None if value is None else find_edit(request.body, b'"system"', array, value)
