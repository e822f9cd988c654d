"""Writes the request for a summary and reads the response.

Law: a request that continues a conversation copies every member that the upstream renders into the prompt (inline.py).
"""

from contextlib import suppress
from typing import Any

import msgspec
import orjson

from proxy.wire.answers.usage import Usage, read_usage
from proxy.wire.chat.inline import read_thinking, write_members
from proxy.wire.chat.message import encode_message
from proxy.wire.chat.request import mark_messages
from proxy.wire.codec import Completion, Parameter, Question, Request, UndecodableError
from proxy.wire.json.repair import DECODE_ERRORS
from rules.conversation import Conversation, Message, Role

_MAX_TOKENS, _MAX_COMPLETION_TOKENS = "max_tokens", "max_completion_tokens"
_REFUSED: dict[str | None, Parameter] = {"temperature": "temperature", _MAX_TOKENS: "completion_limit"}


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
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Error(msgspec.Struct):
    param: str | None = None


class _ErrorAnswer(msgspec.Struct):
    error: _Error


def write_question(question: Question, prompt: str) -> bytes:
    """The body of a request that contains only `prompt`."""
    messages = [{"role": "user", "content": prompt}]
    return orjson.dumps({"model": question.model, "messages": messages, **_write_parameters(question, None)})


def write_question_behind(request: Request, prefix: Conversation, question: Question, prompt: str) -> bytes | None:
    """The body of a request with `prompt` after the messages of `prefix`, and with the request's tools.

    None if the request prescribes the form of the response, or if the members of its body cannot be decoded.
    """
    members = write_members(request.body)
    if members is None:
        return None
    thinking_tokens = read_thinking(members)
    asked = Message(Role.USER, (prompt,), edited=True)
    marked = mark_messages(request, prefix, at_end=True)
    said = [marked.get(at, message) for at, message in enumerate(prefix.messages)]
    members["messages"] = msgspec.Raw(b"[" + b",".join(map(encode_message, (*said, asked))) + b"]")
    if request.cache.key:
        members.setdefault("prompt_cache_key", msgspec.Raw(orjson.dumps(request.cache.key)))
    return msgspec.json.encode({**members, **_write_parameters(question, thinking_tokens)})


def _write_parameters(question: Question, thinking_tokens: int | None) -> dict[str, Any]:
    """If the request turns thinking on, the completion limit must include it, and no temperature is accepted."""
    how: dict[str, Any] = {}
    if question.temperature is not None and thinking_tokens is None:
        how["temperature"] = question.temperature
    key = _MAX_COMPLETION_TOKENS if question.is_reasoning else _MAX_TOKENS
    return {**how, key: question.max_tokens + (thinking_tokens or 0), "stream": False}


def read_completion(answer: bytes) -> Completion:
    """The completion in the response to a question. Raises UndecodableError."""
    try:
        decoded = msgspec.json.decode(answer, type=_Completion)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error
    usage: Usage | None = None
    with suppress(*DECODE_ERRORS):
        usage = read_usage(decoded.usage)
    choice = decoded.choices[0] if decoded.choices else _Choice()
    content = choice.message.content
    return Completion(
        content if isinstance(content, str) else "".join(part.text or "" for part in content or ()),
        usage or Usage(),
        calls_tool=bool(choice.message.tool_calls),
        was_cut=choice.finish_reason == "length",
        was_filtered=choice.finish_reason == "content_filter",
    )


def read_refused_parameter(answer: bytes) -> Parameter | None:
    """The parameter of a question that an error in OpenAI's form names; None if it names none."""
    with suppress(*DECODE_ERRORS):
        return _REFUSED.get(msgspec.json.decode(answer, type=_ErrorAnswer).error.param)
    return None
