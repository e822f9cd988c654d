"""Splits the body of a request into its items, decodes and counts them, and writes the body again.

Law: everything that no rule touched keeps its bytes: items, the white space between them, and all other members.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from proxy.wire.codec import Codec, Counting, Request, UndecodableError
from proxy.wire.content.cache_help import Client, Helped, add_breakpoint, help_openly
from proxy.wire.content.parts import replace_texts
from proxy.wire.content.tool_lists import ToolList, drop_tools, find_used
from proxy.wire.json.decode import DECODE_ERRORS, decode_members, read_members
from proxy.wire.json.spans import Span, find_member
from proxy.wire.responses import cost
from proxy.wire.responses.message import decode_unit, encode_message, find_call_types
from proxy.wire.responses.units import REFERENCE, find_units
from proxy.wire.transcript.beginnings import Begun, find_transcript
from proxy.wire.transcript.body import Edit, Form, find_elements, read_outside, replace_outside, split_body
from proxy.wire.transcript.decoding import FixedTokens, decode_units, discount_compacted, join_units, recall
from proxy.wire.transcript.elements import Placed, Source, write_elements
from rules.conversation import Conversation, Message, Origin, Role
from rules.tokens.messages import count_format, count_shared_frame, count_tools

TOOLS_FACTOR = 16
"""Tools count this many times their bytes as work. Fitted for chat completions, whose tools are rendered alike."""
_TEXT = b'{"role":"user","content":'
_SYSTEM = b'{"role":"system","content":'
_OUTSIDE = Origin(0, 0)
"""The origin of the instructions, which are no item."""
_NOTHING = (b"", b"null", b'""')


class _Body(msgspec.Struct):
    input: list[msgspec.Raw] | str | None = None
    model: Any = None
    stream: Any = None
    max_output_tokens: Any = None
    reasoning: Any = None
    instructions: msgspec.Raw = msgspec.Raw()
    previous_response_id: msgspec.Raw = msgspec.Raw()
    conversation: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    tool_choice: msgspec.Raw = msgspec.Raw()
    text: msgspec.Raw = msgspec.Raw()


_READ_ANYWAY = frozenset({Role.SYSTEM, Role.USER})
"""Roles of the messages before a compaction item that the model still reads. Source: OpenAI's guide on compaction: a
compacted window begins with the user's messages; items of the model and results before it may be left out."""
FORM = Form(
    b'"input"',
    msgspec.json.Decoder(_Body).decode,
    lambda body: body.input if isinstance(body.input, list) else (),
    lambda body: (body.tools, body.text),
)


def read_request(codec: Codec, body: bytes, begun: Begun | None = None, *, max_chars: int | None = None) -> Request:
    """Split a body into its items without decoding them; see `split_body`. Raises UndecodableError.

    A text in place of items is one item. `fixed` has the instructions, the names of what the upstream holds, and the
    members that cost tokens.
    """
    decoded, raws, beginning = split_body(FORM, body, begun, max_chars=max_chars)
    if isinstance(decoded.input, str):
        raws = (_TEXT + msgspec.json.encode(decoded.input) + b"}",)
    wanted, stream = decoded.max_output_tokens, decoded.stream is True
    fixed = (
        decoded.instructions,
        decoded.previous_response_id,
        decoded.conversation,
        decoded.tools,
        decoded.tool_choice,
        decoded.text,
    )
    return Request(
        codec=codec,
        body=body,
        raws=raws,
        model=decoded.model if isinstance(decoded.model, str) else "",
        stream=stream,
        max_tokens=wanted if type(wanted) is int else None,
        fixed=tuple(b"" if raw in _NOTHING else raw for raw in map(bytes, fixed)),
        is_reasoning=isinstance(decoded.reasoning, dict),
        asks_usage=stream,  # it always ends with the usage
        beginning=beginning,
    )


def _read_system(request: Request) -> tuple[bytes, ...]:
    """The instructions as an item."""
    instructions = request.fixed[0]
    return (_SYSTEM + instructions + b"}",) if instructions else ()


def drop_unused_tools(
    request: Request, transcript: Conversation, globs: tuple[str, ...], counting: Counting
) -> tuple[bytes, int]:
    """The body without the declarations of tools that match; see `drop_tools`."""
    tools, tool_choice, _ = request.fixed[3:]
    lists = (ToolList(b'"tools"', tools, tool_choice, (b'"tool_choice"', b'"parallel_tool_calls"')),)
    used = find_used(transcript.messages)
    return drop_tools(request.body, find_transcript(request.beginning), lists, used, globs, counting.tool_lists)


def uncounted_bytes(request: Request, counting: Counting) -> int:
    """Bytes of JSON that are not decoded and counted yet. Tools count TOOLS_FACTOR times, because they take longer."""
    known = counting.known.view(request.codec.name, counting.number)
    recalled = recall(request.raws, request.beginning, known, find_units)
    start = recalled.elements
    new = join_units(request.raws, find_units(request.raws, start))
    return known.count_unknown_bytes([*_read_system(request), *new], request.fixed[3:], TOOLS_FACTOR)


def decode_request(request: Request, counting: Counting) -> Conversation:
    """The request's transcript with its token counts, first the instructions. Raises UndecodableError.

    Also notes in the request's beginning what was decoded, for the request that continues it.
    """
    known, decode = counting.known.view(request.codec.name, counting.number), partial(decode_unit, counting)
    try:
        messages, origins = decode_units(request.raws, request.beginning, known, decode, find_units)
        system = [message for found in known.decode(_read_system(request), decode) for message in found]
        fixed = _count_fixed(request, counting)
        continues = any(request.fixed[1:3]) or _lacks_calls(messages)
        messages = discount_compacted(messages, _READ_ANYWAY)
        if system:
            messages, origins = (*system, *messages), (_OUTSIDE, *origins)
        tokens = fixed.format_tokens + fixed.tools_tokens
        if fixed.has_functions and messages:
            tokens += count_shared_frame(messages[0], counting.count, counting.costs)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error
    return Conversation(messages, max(tokens, 0), origins, continues=continues)


def _lacks_calls(messages: Sequence[Message]) -> bool:
    """Whether references may stand for what results answer, or for items of unknown kind: then nothing may be cut."""
    if any(message.wire_role == REFERENCE for message in messages):
        return True
    if not any(message.has_uncounted and REFERENCE.encode() in message.raw for message in messages):
        return False
    asked: set[str] = set()
    for message in messages:
        if message.answers is not None and message.answers not in asked:
            return True
        asked.update(call.id for call in message.tool_calls)
    return False


def count_format_tokens(request: Request, counting: Counting) -> int:
    """Tokens of the frame and of the response format: everything outside the transcript except the tools."""
    return _count_fixed(request, counting).format_tokens


def _count_fixed(request: Request, counting: Counting) -> FixedTokens:
    def count(raws: tuple[bytes, ...]) -> FixedTokens:
        around, count, costs = cost.read_surroundings(raws), counting.count, counting.costs
        return FixedTokens(
            count_format(around, count, costs), count_tools(around, count, costs), has_functions=bool(around.functions)
        )

    return counting.known.view(request.codec.name, counting.number).count_fixed(request.fixed[3:], count)


def counts_all(request: Request) -> bool:
    """Whether each member of the body except `input` is counted, or is known to cost no tokens."""
    try:
        return cost.counts_all(read_outside(request.body, request.beginning))
    except DECODE_ERRORS:
        return False


def strip_system(conversation: Conversation) -> Conversation:
    """The transcript without the instructions, which are no item."""
    if conversation.origins[:1] != (_OUTSIDE,):
        return conversation
    return replace(conversation, messages=conversation.messages[1:], origins=conversation.origins[1:])


def encode_request(request: Request, before: Conversation, after: Conversation) -> tuple[bytes, ...]:
    """The body with the transcript `after`, in pieces. If `after` is the object `before`: the unchanged body.

    Raises UndecodableError if the key of the items is written with escapes.
    """
    if after is before:
        return (request.body,)
    pieces, instructions = _encode_items(request, strip_system(before), strip_system(after)), write_instructions(after)
    if instructions is None:
        return pieces
    beginning = request.beginning
    within = Span(len(request.body), len(request.body))
    if beginning is not None:
        within = Span(beginning.array.start, beginning.array.stop)
    elif (found := find_member(request.body, FORM.key)) is not None:
        within = found
    place = find_member(request.body, b'"instructions"', within)
    if place is None:
        problem = "a key is written with escapes"
        raise UndecodableError(problem)
    return replace_outside(request.body, within.start, pieces, Edit(place, instructions))


def write_instructions(after: Conversation) -> bytes | None:
    """The instructions with shortened texts; None if no rule has changed them."""
    if after.origins[:1] != (_OUTSIDE,) or not after.messages[0].edited:
        return None
    message = after.messages[0]
    return replace_texts(bytes(read_members(message.raw)["content"]), iter(message.texts))


def _encode_items(request: Request, before: Conversation, after: Conversation) -> tuple[bytes, ...]:
    """The body with the items `after`, in pieces; both transcripts are without the instructions."""
    if not request.raws or after.messages == before.messages:
        return (request.body,)
    if request.raws[0].startswith(_TEXT):
        pieces = _encode_text(request, after)
        if pieces is not None:
            return pieces
    beginning = request.beginning
    array = find_elements(FORM, request.body, request.raws) if beginning is None else beginning.array
    earlier = None if beginning is None else beginning.written
    source = Source(request.body, array, before)
    written, ending = write_elements(source, after, _Writer(after.messages), written=earlier)
    if beginning is not None:
        beginning.written = written
    return (*written.pieces, ending)


def _encode_text(request: Request, after: Conversation) -> tuple[bytes, ...] | None:
    """The body whose input is a text; None if it has items. The input stays a text if that can hold the transcript."""
    span = find_member(request.body, FORM.key)
    if span is None or request.body[span.start : span.start + 1] != b'"':
        return None
    items = write_items(after.messages)
    content = bytes(decode_members(items[0]).get("content", b"")) if len(items) == 1 else b""
    written = content if content[:1] == b'"' else b"[" + b",".join(items) + b"]"
    return request.body[: span.start], written, request.body[span.stop :]


def write_items(messages: Sequence[Message]) -> list[bytes]:
    """The JSON of the items of each message."""
    write = _Writer(messages)
    return [write([(message, None)]) for message in messages]


class _Writer:
    """Writes messages as items. The types of all calls are looked up once, and only if a result must be made."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._call_types: dict[str, str] | None = None

    def __call__(self, placed: Sequence[Placed]) -> bytes:
        ((message, _),) = placed
        if self._call_types is None and not message.raw:
            self._call_types = find_call_types(self._messages)
        return encode_message(message, self._call_types or {})


def help_cache(request: Request, after: Conversation, pieces: tuple[bytes, ...]) -> Helped:
    """The body with `request.cache`. Raises one of DECODE_ERRORS."""
    client = request.read_client()
    marked = mark_messages(request, after, client)
    asked = request.cache if "prompt_cache_key" not in client.outside else replace(request.cache, key="")
    return help_openly(asked, pieces, after.messages, marked, lambda message: encode_message(message, {}))


def mark_messages(
    request: Request, after: Conversation, client: Client | None = None, *, at_end: bool = False
) -> dict[int, Message]:
    """The messages that get a cache marker, by index. `at_end`: the last one gets one, too.

    Raises one of DECODE_ERRORS.
    """
    if "cache_breakpoint" not in request.cache.adds:
        return {}
    return add_breakpoint(after.messages, after.origins, client or request.read_client(), at_end=at_end)
