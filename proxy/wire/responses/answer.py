"""Reads a response: its usage, its texts, whether it refuses the prompt, and the provider's own note on a conversation.

Law: no I/O. Nothing is raised, whatever the input is, except by `join` and `join_note`. Errors are written, and answers
as a stream. An error in a stream is two events, as OpenAI's API sends them: `error` for SDKs, and `response.failed` for
Codex.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

import msgspec

from trimtab.proxy.wire.answering import Completion, ProviderNote
from trimtab.proxy.wire.answers.sse import MAX_EMPTY_EVENT_BYTES, write_event
from trimtab.proxy.wire.answers.tap import Piece
from trimtab.proxy.wire.answers.usage import NULL, Usage, try_inner_usage, try_usage
from trimtab.proxy.wire.json import DECODE_ERRORS, decode_member, decode_members, try_decode
from trimtab.proxy.wire.overflow import Overflow, read_overflow
from trimtab.proxy.wire.responses.units import COMPACTIONS, RESULT_TYPES, read_head
from trimtab.proxy.wire.transcript.body import UndecodableError

_DELTAS = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "refusal",
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "arguments",
    "response.mcp_call_arguments.delta": "arguments",
    "response.code_interpreter_call_code.delta": "arguments",
    "response.shell_call_command.delta": "arguments",
    "response.apply_patch_call_operation_diff.delta": "arguments",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
}
"""The events with a piece of what the model writes."""
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_GREETINGS = frozenset({"response.created", "response.in_progress", "response.queued"})
"""The events that say only that the request arrived. Source: OpenAI's API, which sends them before an error, too."""
_OPENINGS = frozenset(
    {"response.output_item.added", "response.content_part.added", "response.reasoning_summary_part.added"}
)
_TEXT_TYPES = ("message", "reasoning", "output_text", "reasoning_text", "summary_text")
_TEXTS = ("content", "summary", "encrypted_content", "text")
"""The items and parts that may be opened before there is a text in them, and what has the text."""
_ANSWER = re.compile(
    rb'"type"\s{0,9}:\s{0,9}"response\.(?!created|in_progress|queued|failed|incomplete|completed)[a-z_]+\.'
)


class _Item(msgspec.Struct):
    """An item of the output. Only a function and a custom tool have a `name`."""

    type: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    content: msgspec.Raw = NULL
    summary: msgspec.Raw = NULL


class _Part(msgspec.Struct):
    text: str | None = None
    refusal: str | None = None


class _Answer(msgspec.Struct):
    """An event, which has a `type`, or a whole response."""

    type: str | None = None
    delta: str | None = None
    output_index: int = 0
    content_index: int | None = None
    summary_index: int | None = None
    item: msgspec.Raw = NULL
    part: msgspec.Raw = NULL
    response: msgspec.Raw = NULL
    output: msgspec.Raw = NULL
    usage: msgspec.Raw = NULL


_decode = msgspec.json.Decoder(_Answer).decode
_decode_item = msgspec.json.Decoder(_Item | None).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw] | None).decode
_decode_parts = msgspec.json.Decoder(list[_Part] | None).decode


def is_end(data: bytes) -> bool:
    with suppress(*DECODE_ERRORS):
        return _decode(data).type in _ENDS
    return False


def read_answer(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece] | None]:
    try:
        answer = _decode(data)
    except DECODE_ERRORS:
        return usage, None  # `[DONE]`, an event with another kind of delta, or garbage
    kind = _DELTAS.get(answer.type or "")
    if kind is not None:
        place = answer.output_index, answer.content_index, answer.summary_index, kind
        return usage, (Piece(place, answer.delta, kind == "reasoning"),) if answer.delta else ()
    if answer.type in _ENDS:
        usage = try_inner_usage(answer.response, usage)
    elif answer.type is None:
        usage = try_usage(answer.usage, usage)
    with suppress(*DECODE_ERRORS):
        if not answer.type:
            return usage, list(_read_items(_decode_items(answer.output) or ()))
        item = _decode_item(answer.item) if answer.type == "response.output_item.added" else None
        return usage, () if item is None or not item.name else (Piece((answer.output_index, "name"), item.name),)
    return usage, ()


def _read_items(raws: Sequence[msgspec.Raw]) -> Iterator[Piece]:
    for index, raw in enumerate(raws):
        with suppress(*DECODE_ERRORS):
            item = _decode_item(raw) or _Item()
            parts = [*(_decode_parts(item.content) or ()), *(_decode_parts(item.summary) or ())]
            texts = (
                item.name,
                item.arguments,
                item.input,
                *(text for part in parts for text in (part.text, part.refusal)),
            )
            for place, text in enumerate(texts):
                if text:
                    yield Piece((index, place), text, item.type == "reasoning")


def is_part_of_answer(line: bytes) -> bool:
    return _ANSWER.search(line) is not None and b'"error"' not in line


def is_greeting(data: bytes) -> bool:
    """Whether an event says only that the request arrived, nothing about the response, or that an item is empty yet."""
    with suppress(*DECODE_ERRORS):
        event = _decode(data)
        kind = event.type
        if kind in _OPENINGS and len(data) <= MAX_EMPTY_EVENT_BYTES:
            opened = try_decode(event.item if event.part == NULL else event.part)
            is_text = isinstance(opened, dict) and opened.get("type") in _TEXT_TYPES
            return is_text and not any(map(opened.get, _TEXTS))
        return kind in _GREETINGS or (kind is not None and kind != "error" and not kind.startswith("response."))
    return False


def read_empty_answer(body: bytes) -> Overflow | None:
    """The overflow in an error: a response or an event is a refusal only if it is one."""
    error = find_error(try_decode(body))
    return None if error is None else read_overflow(200, msgspec.json.encode({"error": error}))


def find_error(answer: Any) -> dict[str, Any] | None:
    """The error in a response or in an event: that of its response, its own, or its own members; None for no error."""
    if not isinstance(answer, dict):
        return None
    inner = answer.get("response")
    for error in (inner.get("error") if isinstance(inner, dict) else None, answer.get("error")):
        if isinstance(error, dict):
            return error
        if isinstance(error, str) and error:
            return {"message": error}
    if answer.get("type") != "error":
        return None
    return {name: value for name, value in answer.items() if name in {"code", "message", "param"}}


class _Response(msgspec.Struct):
    """A response. At the end of a stream it may lack its items: ChatGPT's own backend sends them once, as done."""

    output: list[msgspec.Raw] | None = None
    status: str | None = None
    object: Any = ""
    incomplete_details: dict[str, Any] | None = None
    usage: msgspec.Raw = NULL


_decode_response = msgspec.json.Decoder(_Response).decode


def write_answer(status: int, body: bytes) -> bytes | None:
    """The items of a response and its end, or its error; None for a body in another form."""
    error = find_error(try_decode(body))
    if error is not None:
        code = error.get("code") or error.get("type") or status
        return write_failure({"type": "upstream_error", "param": None, "message": "", **error, "code": str(code)})
    if status == 200:
        with suppress(*DECODE_ERRORS):
            response = _decode_response(body)
            end = "response.incomplete" if response.status == "incomplete" else "response.completed"
            items = enumerate(response.output or ())
            events = [{"type": _DONE, "output_index": index, "item": item} for index, item in items]
            return _write_events([*events, {"type": end, "response": msgspec.Raw(body)}])
    return None


def write_failure(described: dict[str, Any]) -> bytes:
    short = {name: described.get(name) for name in ("code", "message")}
    response = {"id": "resp_trimtab", "object": "response", "created_at": 0, "status": "failed", "error": short}
    response |= {"incomplete_details": None, "output": [], "usage": None}
    return _write_events([{"type": "error", "error": described}, {"type": "response.failed", "response": response}])


def _write_events(events: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(
        write_event(
            msgspec.json.encode({"type": event["type"], "sequence_number": number, **event}), event["type"].encode()
        )
        for number, event in enumerate(events)
    )


_SUMMED = _ENDS - {"response.failed"}
_DONE, _TEXT = "response.output_item.done", "response.output_text.delta"


class _SaidItem(msgspec.Struct):
    type: str | None = None
    content: list[_Part] | None = None


class _Event(msgspec.Struct):
    """An event, which has a `type`, or a whole response, which has an `output`."""

    type: str | None = None
    response: msgspec.Raw = NULL
    item: msgspec.Raw = NULL
    delta: Any = None
    output: msgspec.Raw = NULL


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_said = msgspec.json.Decoder(_SaidItem).decode


def join(events: list[bytes]) -> Completion:
    """The response, whole or at the end of a stream. Raises UndecodableError if there is none, or for an error."""
    decoded = [_decode_event(data) for data in events]
    ends = [event.response for event in decoded if event.type in _SUMMED]
    for data, event in zip(events, decoded, strict=True):
        if event.type is None and event.output != NULL:  # an event may have an output of its own
            ends.append(msgspec.Raw(data))
    if not ends:
        raise UndecodableError("no response")
    response, items = _decode_response(ends[-1]), list[_SaidItem]()
    for raw in response.output or [event.item for event in decoded if event.type == _DONE]:
        with suppress(*DECODE_ERRORS):
            items.append(_decode_said(raw))
    texts = [part.text or "" for item in items if item.type == "message" for part in item.content or ()]
    if not items:
        texts = [event.delta for event in decoded if event.type == _TEXT and isinstance(event.delta, str)]
    reason = (response.incomplete_details or {}).get("reason")
    return Completion(
        "".join(texts),
        try_usage(response.usage) or Usage(),
        calls_tool=any(item.type in RESULT_TYPES for item in items),
        was_cut=reason == "max_output_tokens",
        was_filtered=reason == "content_filter",
    )


# Compaction gives the user's messages and one encrypted item, which the next input begins with. An answer has a note
# only if it has exactly one such item, and beside it only messages. The system's are left out, since trimtab forwards
# the client's own, as Codex does. Source: OpenAI's guide on compaction and its Python SDK.
_TAKEN = frozenset({
    "model", "input", "instructions", "service_tier",
    "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
})  # fmt: skip
"""The members of such a question. Source: OpenAI's reference of `POST /responses/compact`."""
_SPOKEN = frozenset({"user", "assistant"})
_SYSTEM = frozenset({"system", "developer"})


def _finish(members: dict[str, msgspec.Raw], _: dict[str, Any], __: str) -> dict[str, Any] | None:
    taken = {name: value for name, value in members.items() if name in _TAKEN}
    return None if bytes(members["input"]) == b"[]" else taken


def join_note(events: list[bytes]) -> Completion:
    if len(events) != 1:
        raise UndecodableError("no answer")
    answer = _decode_response(events[0])
    if answer.output is None:
        raise UndecodableError("no output")
    kept = [bytes(item) for item in answer.output if not _is_message(bytes(item), _SYSTEM)]
    packed = [item for item in kept if read_head(item)[0] in COMPACTIONS]
    is_note = (
        len(packed) == 1
        and answer.object == "response.compaction"
        and isinstance(sealed := decode_member(decode_members(packed[0]).get("encrypted_content")), str)
        and bool(sealed)
        and all(_is_message(item, _SPOKEN) for item in kept if item is not packed[0])
    )
    usage = try_usage(answer.usage) or Usage()
    text = "" if is_note or answer.object == "response.compaction" else "answered"
    return Completion(text, usage, note=b",".join(kept) if is_note else b"")


def _is_message(item: bytes, roles: AbstractSet[str]) -> bool:
    kind, role = read_head(item)
    return kind in (None, "message") and isinstance(role, str) and role in roles


NOTE = ProviderNote("/compact", (), _finish, join_note)
