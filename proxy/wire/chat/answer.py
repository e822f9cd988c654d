"""Reads the response to a chat completion: its usage, its texts, its errors. Writes errors in the same form.

Law: no I/O. Nothing is raised, whatever the input is.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from trimtab.proxy.wire.answering import NULL, Completion, try_inner_usage, try_usage
from trimtab.proxy.wire.answers.sse import write_event
from trimtab.proxy.wire.answers.tap import Piece
from trimtab.proxy.wire.answers.usage import Usage, read_timings
from trimtab.proxy.wire.codec import UndecodableError
from trimtab.proxy.wire.json import DECODE_ERRORS, decode_members, try_decode
from trimtab.proxy.wire.overflow import Kind, Overflow, read_overflow

EXCEEDED = "model_context_window_exceeded"
"""Zhipu's `finish_reason` when the context window is full. If the completion is empty, the prompt was too long."""
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
    usage: msgspec.Raw = NULL


class _Answer(msgspec.Struct):
    """`type`, `message`: of Anthropic's message_start. `timings`: llama.cpp's. `x_groq`: has Groq's usage."""

    type: Any = None
    choices: msgspec.Raw = NULL
    usage: msgspec.Raw = NULL
    message: msgspec.Raw = NULL
    timings: msgspec.Raw = NULL
    x_groq: msgspec.Raw = NULL


class _Event(_Answer):
    """With valid choices. It decodes in one pass, so it is tried first."""

    choices: list[_Choice] | None = None  # type: ignore[assignment]


_decode = msgspec.json.Decoder(_Answer).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_choices = msgspec.json.Decoder(list[_Choice] | None).decode


def is_end(data: bytes) -> bool:
    return data.strip() == b"[DONE]"


def read_answer(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece] | None]:
    try:
        answer = _decode_event(data)
    except DECODE_ERRORS:
        return _read_odd_answer(data, usage)
    choices = answer.choices or ()
    for choice in choices:
        if choice.usage != NULL:
            usage = try_usage(choice.usage, usage)
    if answer.type is not None or answer.usage != NULL or answer.timings != NULL or answer.x_groq != NULL:
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
    if answer.type == "message_start":
        usage = try_inner_usage(answer.message, usage)
    if answer.x_groq != NULL:
        usage = try_inner_usage(answer.x_groq, usage)
    if answer.usage != NULL:
        usage = try_usage(answer.usage, usage)
    if answer.timings != NULL:
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
    return b'"choices"' in line and _EXCEEDED not in line and b'"error"' not in line


def is_greeting(data: bytes) -> bool:
    """Whether nothing is said yet: no choice, as in Azure's first chunk, or only who will speak."""
    chunk: Any = try_decode(data) if b'"choices"' in data else None
    if not isinstance(chunk, dict) or chunk.get("error") or chunk.get("usage"):
        return False
    choices = chunk.get("choices")
    return isinstance(choices, list) and all(map(_is_silent, choices))


def _is_silent(choice: Any) -> bool:
    delta = choice.get("delta") if isinstance(choice, dict) else None
    is_empty = isinstance(delta, dict) and not any(value for name, value in delta.items() if name != "role")
    return is_empty and not choice.get("finish_reason")


def read_empty_answer(body: bytes) -> Overflow | None:
    """The overflow in an error, or in a completion without text whose `finish_reason` is EXCEEDED."""
    if is_part_of_answer(body):
        return None
    answer: Any = try_decode(body)
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if not isinstance(answer, dict):
        return None
    if "choices" not in answer:
        return read_overflow(200, body)
    choices = answer["choices"]
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = choice.get("message") or choice.get("delta")
    is_empty = not isinstance(message, dict) or not any(message.get(key) for key in _WRITTEN)
    usage = answer.get("usage")
    wrote = isinstance(usage, dict) and usage.get("completion_tokens")
    return Overflow(Kind.PROMPT) if choice.get("finish_reason") == EXCEEDED and is_empty and not wrote else None


def write_answer(status: int, body: bytes) -> bytes | None:
    members: dict[str, msgspec.Raw] = {}
    with suppress(*DECODE_ERRORS):
        members = decode_members(body)
    return write_event(body) if "error" in members or status == 200 else None


class _SaidPart(msgspec.Struct):
    text: str | None = None


class _Said(msgspec.Struct):
    content: str | list[_SaidPart] | None = None
    tool_calls: list[msgspec.Raw] | None = None


_SILENCE = _Said()


class _Spoken(msgspec.Struct):
    index: int = 0
    message: _Said | None = None
    delta: _Said | None = None
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Spoken] | None = None
    usage: msgspec.Raw = NULL
    error: msgspec.Raw = NULL


_decode_completion = msgspec.json.Decoder(_Completion).decode


def join(events: list[bytes]) -> Completion:
    """The first choice. Raises UndecodableError for an error, or without an answer."""
    answers = [_decode_completion(data) for data in events]
    if any(answer.error != NULL for answer in answers) or all(answer.choices is None for answer in answers):
        message = "no completion"
        raise UndecodableError(message)
    first = [choice for answer in answers for choice in answer.choices or () if choice.index == 0]
    said = [choice.message or choice.delta or _SILENCE for choice in first]
    contents = [one.content or () for one in said]
    reason = next((choice.finish_reason for choice in reversed(first) if choice.finish_reason), None)
    usage = next((answer.usage for answer in reversed(answers) if answer.usage != NULL), NULL)
    return Completion(
        "".join(part if isinstance(part, str) else part.text or "" for content in contents for part in content),
        try_usage(usage) or Usage(),
        calls_tool=any(one.tool_calls for one in said),
        was_cut=reason == "length",
        was_filtered=reason == "content_filter",
    )
