"""Splits the body of a request into its items and writes it again; takes items out that belong to the client alone.

Law: everything that no rule touched keeps its bytes: items, the white space between them, and all other members. With
an item that is taken out goes one comma.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.codec import Codec, Request, UndecodableError, Unsent
from trimtab.proxy.wire.content.cache_help import Client, Helped, add_breakpoint
from trimtab.proxy.wire.content.tool_lists import ToolList
from trimtab.proxy.wire.dialect import (
    SHAPE,
    find_array,
    find_edit,
    help_with_markers,
    take_off_outside,
    write_outside,
    write_transcript,
)
from trimtab.proxy.wire.json.decode import decode_members, read_members
from trimtab.proxy.wire.json.spans import Span, cut, find_member, holds
from trimtab.proxy.wire.responses.message import encode_message, find_call_types
from trimtab.proxy.wire.responses.units import REFERENCE, read_head
from trimtab.proxy.wire.transcript.beginnings import Begun
from trimtab.proxy.wire.transcript.body import Form, find_elements, replace_outside, split_body
from trimtab.proxy.wire.transcript.decoding import discount_compacted
from trimtab.proxy.wire.transcript.elements import Placed
from trimtab.rules.conversation import Conversation, Decision, Message, Role, Shape

_TEXT = b'{"role":"user","content":'
_SYSTEM = b'{"role":"system","content":'
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


def list_instructions(request: Request) -> tuple[bytes, ...]:
    """The instructions as an item."""
    instructions = request.fixed[0]
    return (_SYSTEM + instructions + b"}",) if instructions else ()


COUNTED_FIXED = slice(3, None)


def list_tools(request: Request) -> tuple[ToolList, ...]:
    """The list of tools."""
    tools, tool_choice, _ = request.fixed[COUNTED_FIXED]
    return (ToolList(b'"tools"', tools, tool_choice, (b'"tool_choice"', b'"parallel_tool_calls"')),)


def look_at(request: Request, messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], Shape, bool]:
    """What is before a compaction item counts nothing, except what the model still reads."""
    continues = any(request.fixed[1:3]) or _lacks_calls(messages)
    return discount_compacted(messages, _READ_ANYWAY), SHAPE, continues


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


def encode_request(request: Request, before: Conversation, after: Conversation) -> tuple[bytes, ...]:
    """The body with the transcript `after`, in pieces. If `after` is the object `before`: the unchanged body.

    Raises UndecodableError if the key of the items is written with escapes.
    """
    if after is before:
        return (request.body,)
    pieces, instructions = (
        _encode_items(request, take_off_outside(before), take_off_outside(after)),
        write_instructions(after),
    )
    if instructions is None:
        return pieces
    beginning = request.beginning
    within = Span(len(request.body), len(request.body))
    if beginning is not None:
        within = Span(beginning.array.start, beginning.array.stop)
    elif (found := find_member(request.body, FORM.key)) is not None:
        within = found
    edit = find_edit(request.body, b'"instructions"', within, instructions)
    return replace_outside(request.body, within.start, pieces, edit)


def write_instructions(after: Conversation) -> bytes | None:
    """The instructions with shortened texts; None if no rule has changed them."""
    return write_outside(after, lambda raw: bytes(read_members(raw)["content"]))


def _encode_items(request: Request, before: Conversation, after: Conversation) -> tuple[bytes, ...]:
    """The body with the items `after`, in pieces; both transcripts are without the instructions."""
    if not request.raws or after.messages == before.messages:
        return (request.body,)
    if request.raws[0].startswith(_TEXT):
        pieces = _encode_text(request, after)
        if pieces is not None:
            return pieces
    return write_transcript(request, find_array(FORM, request), before, after, _Writer(after.messages))


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
    return help_with_markers(request, after, pieces, mark_messages, lambda message: encode_message(message, {}))


def mark_messages(
    request: Request, after: Conversation, client: Client | None = None, *, at_end: bool = False
) -> dict[int, Message]:
    """The messages that get a cache marker, by index. `at_end`: the last one gets one, too.

    Raises one of DECODE_ERRORS.
    """
    if "cache_breakpoint" not in request.cache.adds:
        return {}
    return add_breakpoint(after.messages, after.origins, client or request.read_client(), at_end=at_end)


RULE = "local_items"
"""Name of the rule in decisions."""


def clean_request(request: Request, unsent: Unsent) -> tuple[bytes, tuple[Decision, ...]]:
    """The body without the client's own items, and a decision; the body itself if it holds none or is not understood.

    The decision counts items, because nothing is decoded yet. They cost no tokens.
    """
    if not any(holds(request.body, orjson.dumps(name)) for name in unsent.local_items):
        return request.body, ()
    local = frozenset(unsent.local_items)
    gone = [at for at, raw in enumerate(request.raws) if read_head(raw)[0] in local]
    if not gone:
        return request.body, ()
    try:
        spans = _find_spans(request)
    except UndecodableError:
        return request.body, ()
    return cut(request.body, spans, gone), (
        Decision(RULE, f"{len(gone)} items of the client's own", 0, 0, len(gone), gone[0]),
    )


def _find_spans(request: Request) -> list[Span]:
    """The positions of the items. Raises UndecodableError."""
    array = find_elements(FORM, request.body, request.raws) if request.beginning is None else request.beginning.array
    return array.elements
