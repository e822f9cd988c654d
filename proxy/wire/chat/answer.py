"""Reads the response to a chat completion: its usage, its texts, its errors. Writes errors in the same form.

Law: no I/O. Nothing is raised, whatever the input is.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.answers.sse import FirstEvent, write_event
from trimtab.proxy.wire.answers.tap import Piece, Tap
from trimtab.proxy.wire.answers.usage import Usage, read_timings, read_usage
from trimtab.proxy.wire.codec import PROMPT_TOO_LONG, ErrorText
from trimtab.proxy.wire.json.decode import DECODE_ERRORS
from trimtab.proxy.wire.overflow.classify import Overflow, read_overflow
from trimtab.proxy.wire.overflow.wordings import Kind

EXCEEDED = "model_context_window_exceeded"
"""Zhipu's `finish_reason` when the context window is full. If the completion is empty, the prompt was too long."""
MAX_REASON_BYTES = 2000
"""Part of an error in another form than OpenAI's that is quoted in the error event. Chosen: as MAX_TEXT_CHARS in
overflow/classify.py."""
_EXCEEDED = EXCEEDED.encode()
_WRITTEN = ("content", "tool_calls", "reasoning_content", "reasoning")


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Custom(msgspec.Struct):
    name: str | None = None
    input: str | None = None


class _Call(msgspec.Struct):
    function: _Function | None = None
    custom: _Custom | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    """`usage`: Moonshot's streams have it here. Source: earendil-works/pi#2017."""

    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Started(msgspec.Struct):
    """Anthropic's message_start."""

    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Answer(msgspec.Struct):
    """`type`, `message`: of Anthropic's message_start. `timings`: llama.cpp's."""

    type: Any = None
    choices: msgspec.Raw = msgspec.Raw(b"null")
    usage: msgspec.Raw = msgspec.Raw(b"null")
    message: msgspec.Raw = msgspec.Raw(b"null")
    timings: msgspec.Raw = msgspec.Raw(b"null")


class _Event(msgspec.Struct):
    """`_Answer` with valid choices. It decodes in one pass, so it is tried first."""

    type: Any = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    message: msgspec.Raw = msgspec.Raw(b"null")
    timings: msgspec.Raw = msgspec.Raw(b"null")


_NULL = msgspec.Raw(b"null")
_decode = msgspec.json.Decoder(_Answer).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_started = msgspec.json.Decoder(_Started | None).decode
_decode_choices = msgspec.json.Decoder(list[_Choice] | None).decode


def make_tap(*, is_stream: bool, asks_usage: bool = False) -> Tap:
    """A reader for the usage and the text of a response."""
    return Tap(read_answer, is_stream=is_stream, asks_usage=asks_usage, is_end=is_end)


def is_end(data: bytes) -> bool:
    """Whether an event says that the answer is complete."""
    return data.strip() == b"[DONE]"


def hold_first_event(*, keeps_all: bool) -> FirstEvent:
    """A buffer that holds a stream back until its first event is complete, or is certainly part of a completion."""
    return FirstEvent(is_part_of_answer, keeps_all=keeps_all)


def read_answer(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece] | None]:
    """The usage and the texts of a response or of one event. Other JSON gives the usage so far and no texts.

    None instead of texts if it cannot be decoded.
    """
    try:
        answer = _decode_event(data)
    except DECODE_ERRORS:
        return _read_odd_answer(data, usage)
    choices = answer.choices or ()
    for choice in choices:
        if choice.usage != _NULL:
            with suppress(*DECODE_ERRORS):
                usage = read_usage(choice.usage, usage)
    if answer.type is not None or answer.usage != _NULL or answer.timings != _NULL:
        usage = _read_usages(answer, usage)
    return usage, _read_choices(choices)


def _read_odd_answer(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece] | None]:
    """As `read_answer`, of an answer whose choices may be invalid."""
    try:
        answer = _decode(data)
    except DECODE_ERRORS:
        return usage, None  # `[DONE]`, an error, or garbage
    usage = _read_usages(answer, usage)
    with suppress(*DECODE_ERRORS):
        return usage, _read_choices(_decode_choices(answer.choices) or ())
    return usage, ()


def _read_usages(answer: _Answer | _Event, usage: Usage | None) -> Usage | None:
    """The usage so far with that of a response or of one event, without that of its choices."""
    if answer.type == "message_start":
        with suppress(*DECODE_ERRORS):
            started = _decode_started(answer.message)
            if started is not None:
                usage = read_usage(started.usage, usage)
    if answer.usage != _NULL:
        with suppress(*DECODE_ERRORS):
            usage = read_usage(answer.usage, usage)
    if answer.timings != _NULL:
        with suppress(*DECODE_ERRORS):
            usage = read_timings(answer.timings, usage)
    return usage


def _read_choices(choices: Sequence[_Choice]) -> list[Piece]:
    pieces: list[Piece] = []
    for choice in choices:
        delta, index = choice.delta or choice.message, choice.index
        if delta is None:
            continue
        if delta.content:
            pieces.append(Piece((index, "content"), delta.content))
        if delta.reasoning_content or delta.reasoning:
            text = delta.reasoning_content or delta.reasoning or ""
            pieces.append(Piece((index, "reasoning"), text, is_reasoning=True))
        if delta.refusal:
            pieces.append(Piece((index, "refusal"), delta.refusal))
        if delta.tool_calls:
            written = (text for call in delta.tool_calls for text in _read_call(call))
            pieces += [Piece((index, kind), text) for kind, text in written if text]
    return pieces


def _read_call(call: _Call) -> Iterator[tuple[str, str | None]]:
    if call.function is not None:
        yield "name", call.function.name
        yield "arguments", call.function.arguments
    if call.custom is not None:
        yield "name", call.custom.name
        yield "arguments", call.custom.input


def is_part_of_answer(line: bytes) -> bool:
    """Whether a line of a stream is certainly part of a completion, not of an error."""
    return b'"choices"' in line and _EXCEEDED not in line and b'"error"' not in line


def read_refusal(status: int, body: bytes) -> Overflow | None:
    """What a response says about exceeding the context window; None if it is about something else.

    If the status is 200, `body` is a response or an event of a stream. Then it is a refusal if it contains an error of
    this kind, or a completion without text whose `finish_reason` is EXCEEDED.
    """
    if status != 200:
        return read_overflow(status, body)
    if is_part_of_answer(body):
        return None
    answer: Any = None
    with suppress(*DECODE_ERRORS):
        answer = msgspec.json.decode(body)
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if not isinstance(answer, dict):
        return None
    if "choices" not in answer:
        return read_overflow(status, body)
    choices = answer["choices"]
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = choice.get("message") or choice.get("delta")
    is_empty = not isinstance(message, dict) or not any(message.get(key) for key in _WRITTEN)
    usage = answer.get("usage")
    wrote = isinstance(usage, dict) and usage.get("completion_tokens")
    return Overflow(Kind.PROMPT) if choice.get("finish_reason") == EXCEEDED and is_empty and not wrote else None


def write_error(error: ErrorText, *, as_event: bool) -> bytes:
    """An error in OpenAI's form, as a body or as an event."""
    param = "messages" if error.code == PROMPT_TOO_LONG else error.param
    said = {"message": error.message, "type": error.type, "param": param, "code": error.code, **error.more}
    body = orjson.dumps({"error": said})
    return write_event(body) if as_event else body


def write_answer_event(status: int, body: bytes) -> bytes:
    """A non-stream response as one event. An error without an `error` object becomes one, which names the status."""
    members: dict[str, msgspec.Raw] = {}
    with suppress(*DECODE_ERRORS):
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    if "error" in members or status == 200:
        return write_event(body)
    reason = body[:MAX_REASON_BYTES].decode("utf-8", "replace").strip() or "no reason given"
    return write_error(ErrorText(f"status {status}: {reason}", str(status), "upstream_error"), as_event=True)
