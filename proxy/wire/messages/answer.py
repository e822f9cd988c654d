"""Reads the response to a request: its usage, its texts, its errors. Writes errors in the same form.

Law: no I/O. Nothing is raised, whatever the input is.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.answers.sse import FirstEvent
from trimtab.proxy.wire.answers.tap import Piece, Tap
from trimtab.proxy.wire.answers.usage import Usage, read_usage
from trimtab.proxy.wire.codec import PROMPT_TOO_LONG, ErrorText
from trimtab.proxy.wire.json.decode import DECODE_ERRORS, try_decode
from trimtab.proxy.wire.overflow.classify import Overflow, read_overflow
from trimtab.proxy.wire.overflow.wordings import Kind

EXCEEDED = "model_context_window_exceeded"
"""The `stop_reason` if the context window is full. If the completion is empty, the prompt was too long."""
MAX_REASON_BYTES = 2000
"""Part of an error in another form than Anthropic's that is quoted in the error event. Chosen: as MAX_TEXT_CHARS in
overflow/classify.py."""
_TYPES = {
    "invalid_api_key": "authentication_error",
    "client_limit_reached": "rate_limit_error",
    "overloaded": "overloaded_error",
    "upstream_timeout": "timeout_error",
    "not_found": "not_found_error",
    "path_not_allowed": "not_found_error",
}
"""Anthropic's `type` of an error, by our code."""


class _Delta(msgspec.Struct):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    content: str | None = None


class _Block(msgspec.Struct):
    type: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    content: msgspec.Raw = msgspec.Raw(b"null")
    input: msgspec.Raw = msgspec.Raw(b"null")


class _Started(msgspec.Struct):
    """The message in message_start."""

    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Answer(msgspec.Struct):
    """A response or an event. Members of an unexpected form are decoded one by one, and suppress only themselves."""

    type: Any = None
    index: Any = 0
    delta: msgspec.Raw = msgspec.Raw(b"null")
    content_block: msgspec.Raw = msgspec.Raw(b"null")
    content: msgspec.Raw = msgspec.Raw(b"null")
    message: msgspec.Raw = msgspec.Raw(b"null")
    usage: msgspec.Raw = msgspec.Raw(b"null")


_NULL = msgspec.Raw(b"null")
_OTHERS = ("content_block_start", "content_block_delta", "content_block_stop", "ping", "error")
"""The events that say nothing of the usage. Source: Anthropic's API."""
_NOTHING = frozenset({b"null", b"{}", b'""'})
_decode = msgspec.json.Decoder(_Answer).decode
_decode_delta = msgspec.json.Decoder(_Delta | None).decode
_decode_block = msgspec.json.Decoder(_Block | None).decode
_decode_blocks = msgspec.json.Decoder(list[_Block] | None).decode
_decode_started = msgspec.json.Decoder(_Started | None).decode


def make_tap(*, is_stream: bool, asks_usage: bool = False) -> Tap:
    """A reader for the usage and the text of a response."""
    return Tap(read_answer, is_stream=is_stream, asks_usage=asks_usage, is_end=is_end)


def is_end(data: bytes) -> bool:
    """Whether an event says that the answer is complete."""
    event = try_decode(data)
    return isinstance(event, dict) and event.get("type") == "message_stop"


def hold_first_event(*, keeps_all: bool) -> FirstEvent:
    """A buffer that holds a stream back until it is clear whether it is a completion.

    `message_start` is held until the next event, because an error may still follow it. Pings before it pass.
    """
    return FirstEvent(is_part_of_answer, keeps_all=keeps_all, is_ping=_is_ping, is_greeting=_is_opening)


def is_part_of_answer(line: bytes) -> bool:
    """Whether a line of a stream is certainly part of a completion, not of an error."""
    return b'"content_block' in line and b'"error"' not in line


def _is_ping(data: bytes) -> bool:
    return b'"ping"' in data and b'"error"' not in data


def _is_opening(data: bytes) -> bool:
    return b'"message_start"' in data and b'"error"' not in data


def read_answer(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece] | None]:
    """The usage and the texts of a response or of one event. Other JSON gives the usage so far and no texts.

    None instead of texts if it cannot be decoded.
    """
    try:
        answer = _decode(data)
    except DECODE_ERRORS:
        return usage, None  # an error in another form, or garbage
    if answer.delta != _NULL and answer.usage == _NULL:
        return usage, _read_delta(answer)
    with suppress(*DECODE_ERRORS):
        if answer.type == "message_start":
            started = _decode_started(answer.message) or _Started()
            usage = read_usage(started.usage, usage)
    with suppress(*DECODE_ERRORS):
        if answer.type not in _OTHERS:
            usage = read_usage(answer.usage, usage)
    pieces: list[Piece] = []
    with suppress(*DECODE_ERRORS):
        block = _decode_block(answer.content_block)
        pieces += _read_block(block, _read_index(answer)) if block else ()
    with suppress(*DECODE_ERRORS):
        blocks = _decode_blocks(answer.content) or ()
        pieces += [piece for index, block in enumerate(blocks) for piece in _read_block(block, index)]
    return usage, pieces


def _read_index(answer: _Answer) -> int:
    return answer.index if isinstance(answer.index, int) else 0


def _read_delta(answer: _Answer) -> list[Piece]:
    delta: _Delta | None = None
    with suppress(*DECODE_ERRORS):
        delta = _decode_delta(answer.delta)
    if delta is None:
        return []
    told = {"text": delta.text, "input": delta.partial_json, "content": delta.content}
    return list(_make_pieces(_read_index(answer), told, delta.thinking))


def _read_block(block: _Block, index: int) -> Iterator[Piece]:
    """The pieces of a block, whole or at its start. Results of server tools are not written by the model."""
    told = {"text": block.text, "name": block.name}
    if bytes(block.input) not in _NOTHING:
        told["input"] = bytes(block.input).decode("utf-8", "replace")
    if block.type == "compaction":
        summary = try_decode(bytes(block.content))
        told["content"] = summary if isinstance(summary, str) else None
    return _make_pieces(index, told, block.thinking)


def _make_pieces(index: int, told: dict[str, str | None], thinking: str | None) -> Iterator[Piece]:
    yield from (Piece((index, kind), text) for kind, text in told.items() if text)
    if thinking:
        yield Piece((index, "thinking"), thinking, is_reasoning=True)


def read_refusal(status: int, body: bytes) -> Overflow | None:
    """What a response says about exceeding the context window; None if it is about something else.

    If the status is 200, `body` is a response or the first event of a stream except `message_start`. Then it is a
    refusal if it contains an error of this kind, or a completion without text whose `stop_reason` is EXCEEDED.
    """
    if status != 200:
        return read_overflow(status, body)
    answer = try_decode(body)
    if not isinstance(answer, dict) or not {"delta", "content", "content_block"} & answer.keys():
        return None if isinstance(answer, dict) and answer.get("type") == "message_start" else read_overflow(200, body)
    delta = answer.get("delta")
    ended = delta if isinstance(delta, dict) else answer
    # Not by the usage: an empty response may report one token.
    is_refusal = ended.get("stop_reason") == EXCEEDED and not answer.get("content")
    return Overflow(Kind.PROMPT) if is_refusal else None


def write_error(error: ErrorText, *, as_event: bool) -> bytes:
    """An error in Anthropic's form, as a body or as an event. Our own code is beside its type."""
    message, kind = error.message, _TYPES.get(error.code, error.type)
    if error.code == PROMPT_TOO_LONG:
        message = f"{_describe_excess(error)}{message}"
    elif kind == "trimtab_error":
        kind = "api_error"
    said = {"type": kind, "message": message, "code": error.code, **error.more}
    if error.param is not None:
        said["param"] = error.param
    body = orjson.dumps({"type": "error", "error": said})
    return _write_event(b"error", body) if as_event else body


def _describe_excess(error: ErrorText) -> str:
    """The words by which clients of this API recognise that a prompt is too long. Source: Anthropic's API."""
    if error.tokens is None or error.limit_tokens is None:
        return "prompt is too long: "
    return f"prompt is too long: {max(error.tokens, error.limit_tokens + 1)} tokens > {error.limit_tokens} maximum. "


def write_answer_event(status: int, body: bytes) -> bytes:
    """A non-stream response as events. An error in another form becomes one of this form, which names the status."""
    members = try_decode(body)
    members = members if isinstance(members, dict) else {}
    if status == 200:
        started = orjson.dumps({"type": "message_start", "message": orjson.Fragment(body)}) if members else body
        return _write_event(b"message_start", started) + _write_event(b"message_stop", b'{"type":"message_stop"}')
    if isinstance(members.get("error"), dict):
        return _write_event(b"error", body)
    reason = body[:MAX_REASON_BYTES].decode("utf-8", "replace").strip() or "no reason given"
    return write_error(ErrorText(f"status {status}: {reason}", str(status), "api_error"), as_event=True)


def _write_event(name: bytes, data: bytes) -> bytes:
    """JSON as a named event. Line breaks are dropped: JSON may have them only between its values."""
    return b"event: %b\ndata: %b\n\n" % (name, data.translate(None, b"\r\n"))
