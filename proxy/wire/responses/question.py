"""Writes the request for a summary and reads the response.

Law: of a request that continues a conversation, each member that the upstream renders into the prompt, or by which it
finds its prompt cache, is copied unchanged. So the summary request reads the cache of the conversation. Members that
only say how to respond are left out.

Sources: OpenAI's references of the Responses API and of prompt caching; the request models of vLLM and llama.cpp.
"""

from contextlib import suppress
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.answers.sse import read_events
from trimtab.proxy.wire.answers.usage import Usage, read_usage
from trimtab.proxy.wire.codec import Completion, Question, Request, UndecodableError
from trimtab.proxy.wire.dialect import take_off_outside
from trimtab.proxy.wire.json.decode import DECODE_ERRORS, decode_member, decode_members
from trimtab.proxy.wire.parameters import write_parameters
from trimtab.proxy.wire.responses.request import mark_messages, write_instructions, write_items
from trimtab.proxy.wire.responses.units import RESULT_TYPES
from trimtab.rules.conversation import Conversation, Message, Role

_RENDERED = frozenset(
    {
        "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "truncation", "prompt",
        "include", "context_management", "max_tool_calls", "chat_template", "chat_template_kwargs",
    }
)  # fmt: skip
"""Members that are part of the prompt, or of hidden instructions in it, or change which items are."""
_CACHED = frozenset(
    {
        "model", "service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
        "prompt_cache_options", "store", "client_metadata", "cache_salt", "cache_prompt", "id_slot", "metadata",
    }
)  # fmt: skip
"""Members that name the model, the account and the prompt cache, or say what the upstream may store."""
_TAKEN_OVER = _RENDERED | _CACHED
_OF_SESSION = frozenset(
    {
        "instructions", "include", "service_tier", "user", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "store", "client_metadata", "cache_salt", "metadata",
    }
)  # fmt: skip
"""Members by which an upstream knows the account and the session, whatever is asked. ChatGPT's own backend accepts a
login only with `instructions` and without `store`."""
_FREE_CHOICES = (None, "auto", "none")
_HELD = ("previous_response_id", "conversation")


def write_members(body: bytes, *, is_apart: bool = False) -> dict[str, msgspec.Raw] | None:
    """The members of a request's body that the body of a summary request begins with; its items are not among them.

    is_apart: the summary request does not continue the conversation; only the session is the same.

    None if the request prescribes the form of the response, which a summary would not have, if it continues what the
    upstream holds, or if the members cannot be decoded.
    """
    try:
        members = decode_members(body)
        if is_apart:
            return {name: value for name, value in members.items() if name in _OF_SESSION}
        if any(decode_member(members.get(name)) for name in _HELD) or _prescribes_form(members):
            return None
        taken = {name: value for name, value in members.items() if name in _TAKEN_OVER}
        return {name: value for name, value in taken.items() if name != "tool_choice" or _is_free(value)}
    except DECODE_ERRORS:
        return None


def _prescribes_form(members: dict[str, msgspec.Raw]) -> bool:
    text = decode_member(members.get("text"))
    form = text.get("format") if isinstance(text, dict) else None
    return form is not None and not (isinstance(form, dict) and form.get("type") == "text")


def _is_free(value: msgspec.Raw) -> bool:
    """Whether a choice leaves it to the model whether it calls a tool; it should write a summary instead."""
    choice = decode_member(value)
    if isinstance(choice, dict):
        choice = choice.get("mode") or choice
    return choice in _FREE_CHOICES


LIMITS = ("max_output_tokens",)
STORE, CACHE_KEY = "store", "prompt_cache_key"
_NULL = msgspec.Raw(b"null")
_ENDS = frozenset({"response.completed", "response.incomplete"})
_DONE, _TEXT = "response.output_item.done", "response.output_text.delta"


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
    usage: msgspec.Raw = _NULL


class _Event(msgspec.Struct):
    type: str | None = None
    response: msgspec.Raw = _NULL
    item: msgspec.Raw = _NULL
    delta: Any = None


class _Ended(msgspec.Struct):
    """The response at the end of a stream. Its items may be missing: ChatGPT's own backend sends them once, as done."""

    output: list[_Item] | None = None
    incomplete_details: _Details | None = None
    usage: msgspec.Raw = _NULL


def write_question(question: Question, prompt: str) -> bytes:
    """The body of a request that contains only `prompt`. The upstream is asked to keep nothing of it."""
    asked = write_items([_make_message(prompt)])[0]
    members = {"model": question.model, "input": [orjson.Fragment(asked)], **_keep_nothing(question)}
    return orjson.dumps({**members, **_write(question, thinks=False)})


def write_question_behind(
    request: Request, prefix: Conversation, question: Question, prompt: str, *, is_apart: bool = False
) -> bytes | None:
    """The body of a request with `prompt` after the items of `prefix`, and with the request's tools.

    None if the request prescribes the form of the response, if the upstream holds what is before it, or if the members
    of its body cannot be decoded.
    """
    members = write_members(request.body, is_apart=is_apart)
    if members is None or prefix.continues:
        return None
    said = take_off_outside(prefix)
    marked = {} if is_apart else mark_messages(request, said, at_end=True)
    items = write_items([*(marked.get(at, one) for at, one in enumerate(said.messages)), _make_message(prompt)])
    if request.cache.key and CACHE_KEY not in question.refused:
        members.setdefault(CACHE_KEY, msgspec.Raw(orjson.dumps(request.cache.key)))
    members["input"] = msgspec.Raw(b"[" + b",".join(items) + b"]")
    if (instructions := write_instructions(prefix)) is not None:
        members["instructions"] = msgspec.Raw(instructions)
    own = {"model": question.model} if is_apart else {}
    kept = {**_keep_nothing(question), **members} if is_apart else members
    return msgspec.json.encode({**kept, **own, **_write(question, thinks=request.is_reasoning and not is_apart)})


def _make_message(prompt: str) -> Message:
    return Message(Role.USER, (prompt,), edited=True)


def _keep_nothing(question: Question) -> dict[str, Any]:
    return {} if STORE in question.refused else {STORE: False}


def _write(question: Question, *, thinks: bool) -> dict[str, Any]:
    """`thinks`: the request sets how the model reasons. Such models accept no temperature."""
    return write_parameters(question, LIMITS, thinking_tokens=0 if thinks else None)


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
    reason = decoded.incomplete_details.reason if decoded.incomplete_details else None
    spoken = (item.content or () for item in decoded.output if item.type == "message")
    return Completion(
        "".join(part.text or "" for parts in spoken for part in parts),
        usage or Usage(),
        calls_tool=any(item.type in RESULT_TYPES for item in decoded.output),
        was_cut=reason == "max_output_tokens",
        was_filtered=reason == "content_filter",
    )


def _join(events: list[bytes]) -> _Completion:
    """The response at the end of a stream. Raises UndecodableError if there is none, or for an error."""
    decoded = [msgspec.json.decode(data, type=_Event) for data in events]
    ended = next((event.response for event in reversed(decoded) if event.type in _ENDS), None)
    if ended is None:
        message = "no response in the stream"
        raise UndecodableError(message)
    response, output = msgspec.json.decode(ended, type=_Ended), list[_Item]()
    for event in decoded if not response.output else ():
        if event.type == _DONE:
            with suppress(*DECODE_ERRORS):
                output.append(msgspec.json.decode(event.item, type=_Item))
    output = response.output or output
    if not output:
        text = "".join(event.delta for event in decoded if event.type == _TEXT and isinstance(event.delta, str))
        output = [_Item("message", [_Part(text)])]
    return _Completion(output, response.incomplete_details, response.usage)
