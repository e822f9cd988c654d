"""Splits the body of a request into the elements of `messages`, decodes and counts them, and writes the body again.

Law: everything that no rule touched keeps its bytes: elements, blocks, the white space between elements, and all other
members. `system` is a message of the conversation. If a rule has shortened its texts, only these change in it.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

import msgspec

from proxy.wire.codec import Codec, Counting, Request, UndecodableError
from proxy.wire.content.cache_help import Helped, find_summary
from proxy.wire.content.parts import replace_texts
from proxy.wire.content.tool_lists import ToolList, drop_tools, find_used
from proxy.wire.json.decode import DECODE_ERRORS, decode_member, read_members
from proxy.wire.json.spans import Span, find_member
from proxy.wire.messages.cache import Markers, drop_taken_in, find_client_markers, mark_end
from proxy.wire.messages.cost import read_surroundings
from proxy.wire.messages.message import decode_element, decode_system
from proxy.wire.messages.write import shares_element, write_element
from proxy.wire.transcript.beginnings import Begun, find_transcript
from proxy.wire.transcript.body import Edit, Form, find_elements, replace_outside, split_body
from proxy.wire.transcript.body import read_outside as read_beside
from proxy.wire.transcript.decoding import FixedTokens, KnownView, decode_units, discount_compacted, recall
from proxy.wire.transcript.elements import Source, write_elements
from rules.conversation import Conversation, Message, Origin, Shape
from rules.tokens.messages import count_format, count_shared_frame, count_tools
from rules.tokens.tool_schemas import as_schema

TOOLS_FACTOR = 16
"""Tools count this many times their bytes as work. Measured: as in the dialect of chat completions; rendering hostile
tools takes as long as counting a text of this many times their length."""
_THINKS = frozenset({"enabled", "adaptive"})
SHAPE = Shape(has_system_messages=False, joins_systems=True, seals_reasoning=True)
SHAPE_WITH_THINKING = replace(SHAPE, alternates=False)
"""With thinking, the last message of an assistant must begin with thinking, which nobody can write for the model. So no
line of an assistant is inserted. Anthropic's API joins user messages that follow each other. Source: its pages on
extended thinking and on the Messages API. Between the other messages, it accepts no two system messages in a row, and
after one only an answer or the end. Source: its page on mid-conversation system messages."""
OUTSIDE = Origin(0, 0)
"""The position of the system message: before all elements, and in none of them."""

_COUNTED = frozenset({"messages", "system", "tools", "tool_choice", "output_config", "output_format"})
_WITHOUT_TOKENS = frozenset(
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


def drop_unused_tools(
    request: Request, transcript: Conversation, globs: tuple[str, ...], counting: Counting
) -> tuple[bytes, int]:
    """The body without the declarations of tools that match; see `drop_tools`."""
    lists = (ToolList(b'"tools"', request.fixed[1], request.fixed[2], (b'"tool_choice"',)),)
    used = find_used(transcript.messages)
    return drop_tools(request.body, find_transcript(request.beginning), lists, used, globs, counting.tool_lists)


def uncounted_bytes(request: Request, counting: Counting) -> int:
    """Bytes of JSON that are not decoded and counted yet. Tools count TOOLS_FACTOR times, because they take longer."""
    known = counting.known.view(request.codec.name, counting.number)
    new = request.raws[recall(request.raws, request.beginning, known).elements :]
    return known.count_unknown_bytes((*_list_system(request), *new), _list_counted(request), TOOLS_FACTOR)


def decode_request(request: Request, counting: Counting) -> Conversation:
    """The request's transcript with its token counts. Raises UndecodableError if a message has no role.

    Also notes in the request's beginning what was decoded, for the request that continues it.
    """
    known = counting.known.view(request.codec.name, counting.number)
    try:
        system = known.decode(_list_system(request), partial(_decode_system, counting))
        decoded = decode_units(request.raws, request.beginning, known, partial(decode_element, counting))
        fixed = _count_fixed_once(request, counting, known)
        continues = _continues(request)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error
    outside: tuple[Message, ...] = tuple([message for found in system for message in found])
    # Anthropic's API ignores what is before its compaction. Source: its page on compaction.
    messages = outside + discount_compacted(decoded.messages)
    tokens = fixed.format_tokens + fixed.tools_tokens
    if fixed.has_functions and messages:
        tokens += count_shared_frame(messages[0], counting.count, counting.costs)
    origins = (OUTSIDE,) * len(outside) + decoded.origins
    shape = SHAPE_WITH_THINKING if request.is_reasoning else SHAPE
    return Conversation(messages, max(tokens, 0), origins, shape, continues)


_MARK = b"system:"
"""Begins the key under which a decoded system message is known, so that it is not taken for an element."""


def _list_system(request: Request) -> list[bytes]:
    system = request.fixed[0]
    return [_MARK + system] if system not in (b"", b'""', b"[]") else []


def _decode_system(counting: Counting, marked: bytes) -> tuple[Message, ...]:
    return decode_system(counting, marked[len(_MARK) :])


def _continues(request: Request) -> bool:
    """Whether the upstream holds the messages before these. Raises one of DECODE_ERRORS."""
    thread = request.fixed[-1]
    return b"continue" in thread and as_schema(decode_member(msgspec.Raw(thread))).get("type") == "continue"


def _list_counted(request: Request) -> tuple[bytes, ...]:
    """What `read_surroundings` reads: `fixed` without `system`, which may change with each request, and `thread`."""
    return request.fixed[1:-1]


def count_format_tokens(request: Request, counting: Counting) -> int:
    """Tokens of the frame and of the output format: everything outside the messages except the tools."""
    known = counting.known.view(request.codec.name, counting.number)
    return _count_fixed_once(request, counting, known).format_tokens


def _count_fixed_once(request: Request, counting: Counting, known: KnownView) -> FixedTokens:
    return known.count_fixed(_list_counted(request), partial(_count_fixed, counting))


def _count_fixed(counting: Counting, raws: tuple[bytes, ...]) -> FixedTokens:
    around, count, costs = read_surroundings(raws), counting.count, counting.costs
    return FixedTokens(
        count_format(around, count, costs), count_tools(around, count, costs), has_functions=bool(around.functions)
    )


def read_outside(request: Request) -> dict[str, msgspec.Raw]:
    """The members of the body; `messages` is empty if that saves reading it. Raises one of DECODE_ERRORS."""
    return read_beside(request.body, request.beginning)


def counts_all(request: Request) -> bool:
    """Whether each member of the body except `messages` is counted, or is known to cost no tokens."""
    try:
        members = read_outside(request)
        unknown = members.keys() - _COUNTED - _WITHOUT_TOKENS
        return not unknown or (unknown == {"context_management"} and _only_clears_thinking(members[unknown.pop()]))
    except DECODE_ERRORS:
        return False


def _only_clears_thinking(management: msgspec.Raw) -> bool:
    """Whether the server edits only thinking. Messages with thinking are not used to calibrate anyway."""
    edits = as_schema(decode_member(management)).get("edits")
    kinds = [as_schema(edit).get("type") for edit in edits] if isinstance(edits, list) else [None]
    return all(isinstance(kind, str) and kind.startswith("clear_thinking_") for kind in kinds)


def take_off_system(conversation: Conversation) -> Conversation:
    """The conversation without the system message that is in no element."""
    number = sum(1 for _ in takewhile(OUTSIDE.__eq__, conversation.origins))
    if not number:
        return conversation
    return replace(conversation, messages=conversation.messages[number:], origins=conversation.origins[number:])


def find_markers(request: Request) -> Markers:
    """The request's cache markers."""
    outside: dict[str, msgspec.Raw] = {}
    with suppress(*DECODE_ERRORS):  # if the body has to be repaired, only the markers of its messages are found
        outside = read_outside(request)
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
    beginning = request.beginning
    array = find_elements(FORM, request.body, request.raws) if beginning is None else beginning.array
    earlier = None if beginning is None else beginning.written
    source = Source(request.body, array, take_off_system(before))
    marked = place_marker(request, take_off_system(after))
    write = partial(write_element, request.raws)
    written, ending = write_elements(source, marked, write, shares_element, written=earlier)
    if beginning is not None:
        beginning.written = written
    pieces = (*written.pieces, ending)
    edit = find_system_edit(request, after, Span(array.start, array.stop))
    return pieces if edit is None else replace_outside(request.body, array.start, pieces, edit)


def write_system(after: Conversation) -> bytes | None:
    """The value of `system` with shortened texts; None if no rule has changed it."""
    if after.origins[:1] != (OUTSIDE,) or not after.messages[0].edited:
        return None
    message = after.messages[0]
    value = bytes(read_members(b'{"content":%b}' % message.raw)["content"])
    return replace_texts(value, iter(message.texts))


def find_system_edit(request: Request, after: Conversation, array: Span) -> Edit | None:
    """The new value of `system`; None if no rule has changed it. Raises UndecodableError if its place is not found."""
    value = write_system(after)
    if value is None:
        return None
    place = find_member(request.body, b'"system"', array)
    if place is None:
        problem = "a key is written with escapes"
        raise UndecodableError(problem)
    return Edit(place, value)
