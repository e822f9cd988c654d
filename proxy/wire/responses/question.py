"""Writes the request for a summary and reads the response.

Law: a request that continues a conversation copies every member that the upstream renders into the prompt (inline.py).
"""

from contextlib import suppress
from typing import Any

import msgspec
import orjson

from proxy.wire.answers.usage import Usage, read_usage
from proxy.wire.codec import Completion, Parameter, Question, Request, UndecodableError
from proxy.wire.json.repair import DECODE_ERRORS, try_decode
from proxy.wire.responses.answer import find_error
from proxy.wire.responses.inline import write_members
from proxy.wire.responses.request import mark_messages, strip_system, write_instructions, write_items
from proxy.wire.responses.units import RESULT_TYPES
from rules.conversation import Conversation, Message, Role


class _Part(msgspec.Struct):
    text: str | None = None


class _Item(msgspec.Struct):
    type: str | None = None
    content: list[_Part] | None = None


class _Details(msgspec.Struct):
    reason: str | None = None


class _Completion(msgspec.Struct):
    output: list[_Item]
    incomplete_details: _Details | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


def write_question(question: Question, prompt: str) -> bytes:
    """The body of a request that contains only `prompt`. The upstream is asked to keep nothing of it."""
    asked = write_items([_make_message(prompt)])[0]
    members = {"model": question.model, "input": [orjson.Fragment(asked)], "store": False}
    return orjson.dumps({**members, **_write_parameters(question, thinks=False)})


def write_question_behind(request: Request, prefix: Conversation, question: Question, prompt: str) -> bytes | None:
    """The body of a request with `prompt` after the items of `prefix`, and with the request's tools.

    None if the request prescribes the form of the response, if the upstream holds what is before it, or if the members
    of its body cannot be decoded.
    """
    members = write_members(request.body)
    if members is None or prefix.continues:
        return None
    said = strip_system(prefix)
    marked = mark_messages(request, said, at_end=True)
    items = write_items([*(marked.get(at, one) for at, one in enumerate(said.messages)), _make_message(prompt)])
    if request.cache.key:
        members.setdefault("prompt_cache_key", msgspec.Raw(orjson.dumps(request.cache.key)))
    members["input"] = msgspec.Raw(b"[" + b",".join(items) + b"]")
    if (instructions := write_instructions(prefix)) is not None:
        members["instructions"] = msgspec.Raw(instructions)
    return msgspec.json.encode({**members, **_write_parameters(question, thinks=request.is_reasoning)})


def _make_message(prompt: str) -> Message:
    return Message(Role.USER, (prompt,), edited=True)


def _write_parameters(question: Question, *, thinks: bool) -> dict[str, Any]:
    """`thinks`: the request sets how the model reasons. Such models accept no temperature."""
    how = {} if question.temperature is None or thinks else {"temperature": question.temperature}
    return {**how, "max_output_tokens": question.max_tokens, "stream": False}


def read_completion(answer: bytes) -> Completion:
    """The completion in the response to a question. Raises UndecodableError."""
    try:
        decoded = msgspec.json.decode(answer, type=_Completion)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error
    usage: Usage | None = None
    with suppress(*DECODE_ERRORS):
        usage = read_usage(decoded.usage)
    reason = decoded.incomplete_details.reason if decoded.incomplete_details else None
    spoken = (item.content or () for item in decoded.output if item.type == "message")
    return Completion(
        "".join(part.text or "" for parts in spoken for part in parts),
        usage or Usage(),
        calls_tool=any(item.type in RESULT_TYPES for item in decoded.output),
        was_cut=reason == "max_output_tokens",
        was_filtered=reason == "content_filter",
    )


def read_refused_parameter(answer: bytes) -> Parameter | None:
    """The parameter of a question that an error in OpenAI's form names; None if it names none."""
    error = find_error(try_decode(answer))
    return "temperature" if error is not None and error.get("param") == "temperature" else None
