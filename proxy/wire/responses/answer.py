"""Reads a response: its usage, its texts, and whether it refuses the prompt. Writes errors, and answers as a stream.

Law: no I/O. Nothing is raised, whatever the input is. An error in a stream is two events, as OpenAI's API sends them:
`error` for SDKs, and `response.failed` for Codex.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.answers.sse import FirstEvent, write_event
from trimtab.proxy.wire.answers.tap import Piece, Tap
from trimtab.proxy.wire.answers.usage import Usage, read_usage
from trimtab.proxy.wire.codec import PROMPT_TOO_LONG, ErrorText
from trimtab.proxy.wire.json.decode import DECODE_ERRORS, try_decode
from trimtab.proxy.wire.overflow.classify import Overflow, read_overflow

_NULL = msgspec.Raw(b"null")
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
_ANSWER = re.compile(
    rb'"type"\s{0,9}:\s{0,9}"response\.(?!created|in_progress|queued|failed|incomplete|completed)[a-z_]+\.'
)


class _Item(msgspec.Struct):
    """An item of the output. Only a function and a custom tool have a `name`."""

    type: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    content: msgspec.Raw = _NULL
    summary: msgspec.Raw = _NULL


class _Part(msgspec.Struct):
    text: str | None = None
    refusal: str | None = None


class _Response(msgspec.Struct):
    usage: msgspec.Raw = _NULL


class _Answer(msgspec.Struct):
    """An event, which has a `type`, or a whole response."""

    type: str | None = None
    delta: str | None = None
    output_index: int = 0
    content_index: int | None = None
    summary_index: int | None = None
    item: msgspec.Raw = _NULL
    response: msgspec.Raw = _NULL
    output: msgspec.Raw = _NULL
    usage: msgspec.Raw = _NULL


_decode = msgspec.json.Decoder(_Answer).decode
_decode_response = msgspec.json.Decoder(_Response | None).decode
_decode_item = msgspec.json.Decoder(_Item | None).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw] | None).decode
_decode_parts = msgspec.json.Decoder(list[_Part] | None).decode


def make_tap(*, is_stream: bool, asks_usage: bool = False) -> Tap:
    """A reader for the usage and the text of a response."""
    return Tap(read_answer, is_stream=is_stream, asks_usage=asks_usage, is_end=is_end, carries=True)


def is_end(data: bytes) -> bool:
    """Whether an event says that the answer is complete."""
    with suppress(*DECODE_ERRORS):
        return _decode(data).type in _ENDS
    return False


def hold_first_event(*, keeps_all: bool) -> FirstEvent:
    """A buffer that holds a stream back until the first event after the greetings is complete."""
    return FirstEvent(is_part_of_answer, keeps_all=keeps_all, is_greeting=is_greeting)


def read_answer(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece] | None]:
    """The usage and the texts of a response or of one event. Other JSON gives the usage so far and no texts.

    None instead of texts if it cannot be decoded.
    """
    try:
        answer = _decode(data)
    except DECODE_ERRORS:
        return usage, None  # `[DONE]`, an event with another kind of delta, or garbage
    kind = _DELTAS.get(answer.type or "")
    if kind is not None:
        place = answer.output_index, answer.content_index, answer.summary_index, kind
        return usage, (Piece(place, answer.delta, kind == "reasoning"),) if answer.delta else ()
    with suppress(*DECODE_ERRORS):
        if answer.type in _ENDS:
            response = _decode_response(answer.response) or _Response()
            usage = read_usage(response.usage, usage)
        elif answer.type is None:
            usage = read_usage(answer.usage, usage)
    with suppress(*DECODE_ERRORS):
        return usage, _read_name(answer) if answer.type else list(_read_items(_decode_items(answer.output) or ()))
    return usage, ()


def _read_name(answer: _Answer) -> Sequence[Piece]:
    """The name of a tool that the model begins to call."""
    item = _decode_item(answer.item) if answer.type == "response.output_item.added" else None
    return () if item is None or not item.name else (Piece((answer.output_index, "name"), item.name),)


def _read_items(raws: Sequence[msgspec.Raw]) -> Iterator[Piece]:
    """The texts of a whole output."""
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
    """Whether a line of a stream is certainly part of a completion, not of an error."""
    return _ANSWER.search(line) is not None and b'"error"' not in line


def is_greeting(data: bytes) -> bool:
    """Whether an event says only that the request arrived, or nothing about the response."""
    with suppress(*DECODE_ERRORS):
        kind = _decode(data).type
        return kind in _GREETINGS or (kind is not None and kind != "error" and not kind.startswith("response."))
    return False


def read_refusal(status: int, body: bytes) -> Overflow | None:
    """What a response says about exceeding the context window; None if it is about something else.

    If the status is 200, `body` is a response or an event of a stream. Then it is a refusal only if it is an error.
    """
    if status != 200:
        return read_overflow(status, body)
    error = find_error(try_decode(body))
    return None if error is None else read_overflow(status, msgspec.json.encode({"error": error}))


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


MAX_REASON_BYTES = 2000
"""Part of an error in another form than OpenAI's that is quoted in the events. Chosen: as MAX_TEXT_CHARS in
overflow/classify.py."""


class _Whole(msgspec.Struct):
    output: list[msgspec.Raw] | None = None
    status: str | None = None


def write_error(error: ErrorText, *, as_event: bool) -> bytes:
    """An error in OpenAI's form, as a body or as the events that end a stream."""
    param = "input" if error.code == PROMPT_TOO_LONG else error.param
    said = {"message": error.message, "type": error.type, "param": param, "code": error.code, **error.more}
    return _write_failure(said) if as_event else orjson.dumps({"error": said})


def write_answer_event(status: int, body: bytes) -> bytes:
    """A non-stream response as events: its items and its end, or its error. A body in another form names the status."""
    error = find_error(try_decode(body))
    if error is not None:
        code = error.get("code") or error.get("type") or status
        return _write_failure({"type": "upstream_error", "param": None, "message": "", **error, "code": str(code)})
    if status == 200:
        with suppress(*DECODE_ERRORS):
            response = msgspec.json.decode(body, type=_Whole)
            return _write_events(_list_events(response, body))
    reason = body[:MAX_REASON_BYTES].decode("utf-8", "replace").strip() or "no reason given"
    return write_error(ErrorText(f"status {status}: {reason}", str(status), "upstream_error"), as_event=True)


def _list_events(response: _Whole, body: bytes) -> Iterable[dict[str, Any]]:
    for index, item in enumerate(response.output or ()):
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    end = "incomplete" if response.status == "incomplete" else "completed"
    yield {"type": f"response.{end}", "response": msgspec.Raw(body)}


def _write_failure(error: dict[str, Any]) -> bytes:
    short = {name: error.get(name) for name in ("code", "message")}
    response = {"id": "resp_trimtab", "object": "response", "created_at": 0, "status": "failed", "error": short}
    response |= {"incomplete_details": None, "output": [], "usage": None}
    return _write_events([{"type": "error", "error": error}, {"type": "response.failed", "response": response}])


def _write_events(events: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(
        b"event: %b\n" % event["type"].encode()
        + write_event(msgspec.json.encode({"type": event["type"], "sequence_number": number, **event}))
        for number, event in enumerate(events)
    )
