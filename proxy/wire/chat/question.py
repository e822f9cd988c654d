"""Writes the request for a summary and reads the response.

Law: a request that continues a conversation copies every member that the upstream renders into the prompt (inline.py).
"""

from contextlib import suppress
from typing import Any

import msgspec
import orjson

from proxy.wire.answers.sse import read_events
from proxy.wire.answers.usage import Usage, read_usage
from proxy.wire.chat.binding import drop_thinking, is_bound
from proxy.wire.chat.inline import read_thinking, write_members
from proxy.wire.chat.message import encode_message
from proxy.wire.chat.request import mark_messages
from proxy.wire.codec import Completion, Question, Request, UndecodableError
from proxy.wire.json.decode import DECODE_ERRORS
from proxy.wire.parameters import write_parameters
from rules.conversation import Conversation, Message, Role

LIMITS = ("max_tokens", "max_completion_tokens")
"""Models that think accept only the second one."""
CACHE_KEY = "prompt_cache_key"
_NULL = msgspec.Raw(b"null")


class _Part(msgspec.Struct):
    text: str | None = None


class _Content(msgspec.Struct):
    content: str | list[_Part] | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    message: _Content = msgspec.field(default_factory=_Content)
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: msgspec.Raw = _NULL


class _Piece(msgspec.Struct):
    index: int = 0
    delta: _Content = msgspec.field(default_factory=_Content)
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Piece] | None = None
    usage: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL


def write_question(question: Question, prompt: str) -> bytes:
    """The body of a request that contains only `prompt`."""
    messages = [{"role": "user", "content": prompt}]
    return orjson.dumps({"model": question.model, "messages": messages, **_write(question, None)})


def write_question_behind(
    request: Request, prefix: Conversation, question: Question, prompt: str, *, is_apart: bool = False
) -> bytes | None:
    """The body of a request with `prompt` after the messages of `prefix`, and with the request's tools.

    None if the request prescribes the form of the response, or if the members of its body cannot be decoded.
    """
    members = write_members(request.body, is_apart=is_apart)
    if members is None:
        return None
    asked = Message(Role.USER, (prompt,), edited=True)
    marked = {} if is_apart else mark_messages(request, prefix, at_end=True)
    said = [marked.get(at, message) for at, message in enumerate(prefix.messages)]
    elements = map(encode_message, (*said, asked))
    if request.breaks_past and is_bound(request, prefix):
        elements = map(drop_thinking, elements)
    members["messages"] = msgspec.Raw(b"[" + b",".join(elements) + b"]")
    if request.cache.key and CACHE_KEY not in question.refused:
        members.setdefault(CACHE_KEY, msgspec.Raw(orjson.dumps(request.cache.key)))
    own = {"model": question.model} if is_apart else {}
    return msgspec.json.encode({**members, **own, **_write(question, read_thinking(members))})


def _write(question: Question, thinking_tokens: int | None) -> dict[str, Any]:
    return write_parameters(question, LIMITS, thinking_tokens=thinking_tokens, has_options=True)


def read_completion(answer: bytes) -> Completion:
    """The completion in the response to a question, streamed or not. Raises UndecodableError."""
    try:
        events = read_events(answer)
        decoded = msgspec.json.decode(answer, type=_Completion) if events is None else _join(events)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error
    usage: Usage | None = None
    with suppress(*DECODE_ERRORS):
        usage = read_usage(decoded.usage)
    choice = decoded.choices[0] if decoded.choices else _Choice()
    return Completion(
        _read_text(choice.message),
        usage or Usage(),
        calls_tool=bool(choice.message.tool_calls),
        was_cut=choice.finish_reason == "length",
        was_filtered=choice.finish_reason == "content_filter",
    )


def _read_text(said: _Content) -> str:
    content = said.content
    return content if isinstance(content, str) else "".join(part.text or "" for part in content or ())


def _join(events: list[bytes]) -> _Completion:
    """The first choice of a stream as one completion. Raises UndecodableError for an error, or without an answer."""
    chunks = [msgspec.json.decode(data, type=_Chunk) for data in events]
    if any(chunk.error != _NULL for chunk in chunks) or not any(chunk.choices for chunk in chunks):
        message = "no completion in the stream"
        raise UndecodableError(message)
    pieces = [piece for chunk in chunks for piece in chunk.choices or () if piece.index == 0]
    calls = [call for piece in pieces for call in piece.delta.tool_calls or ()]
    text = "".join(_read_text(piece.delta) for piece in pieces)
    finish = next((piece.finish_reason for piece in reversed(pieces) if piece.finish_reason), None)
    usage = next((chunk.usage for chunk in reversed(chunks) if chunk.usage != _NULL), _NULL)
    return _Completion([_Choice(_Content(text, calls), finish)], usage)
