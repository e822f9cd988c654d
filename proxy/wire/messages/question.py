"""Writes the request for a summary and reads the response.

Law: of a request that continues a conversation, each member that the upstream renders into the prompt, or by which it
finds its prompt cache, is copied unchanged. So the summary request reads the cache of the conversation. Members that
only say how to respond are left out. The client's cache markers are kept.

Source: Anthropic's API reference, and its page on what invalidates the prompt cache.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.answers.sse import read_events
from trimtab.proxy.wire.answers.usage import Usage, read_usage
from trimtab.proxy.wire.codec import Completion, Question, Request, UndecodableError
from trimtab.proxy.wire.dialect import take_off_outside
from trimtab.proxy.wire.json.decode import DECODE_ERRORS, decode_member
from trimtab.proxy.wire.messages.binding import allow_drops, drop_thinking, is_bound, is_off
from trimtab.proxy.wire.messages.cache import mark_end
from trimtab.proxy.wire.messages.request import find_markers, place_marker, write_system
from trimtab.proxy.wire.messages.write import shares_element, write_element
from trimtab.proxy.wire.parameters import bound_limit, write_parameters
from trimtab.proxy.wire.transcript.body import read_outside
from trimtab.proxy.wire.transcript.elements import Placed
from trimtab.rules.conversation import Conversation, Message, Role
from trimtab.rules.tokens.tool_schemas import as_schema

_TAKEN_OVER = frozenset(
    {
        "model", "system", "tools", "tool_choice", "thinking", "output_config", "mcp_servers", "container",
        "context_management", "cache_control", "metadata", "service_tier", "speed", "inference_geo",
        "anthropic_version", "anthropic_beta", "user_profile_id", "billing_policy",
    }
)  # fmt: skip
"""Members that are part of the prompt or of hidden instructions in it, or name the account and the cache."""
_OF_SESSION = frozenset(
    {
        "system", "metadata", "service_tier", "speed", "inference_geo", "anthropic_version", "anthropic_beta",
        "user_profile_id", "billing_policy",
    }
)  # fmt: skip
"""Members by which an upstream knows the account and the session, whatever is asked. Anthropic accepts the login of
Claude Code only with its system prompt."""
_FREE_CHOICES = (None, "auto", "none")
_THINKS = ("enabled", "adaptive")


def write_members(request: Request, *, is_apart: bool = False) -> dict[str, msgspec.Raw] | None:
    """The members of a request's body that the body of a summary request begins with; its messages are not among them.

    is_apart: the summary request does not continue the conversation; only the session is the same.

    None if the request prescribes the form of the response or asks the server to summarise, or if the members cannot be
    decoded.
    """
    try:
        everything = read_outside(request.body, request.beginning)
        if is_apart:
            return {name: value for name, value in everything.items() if name in _OF_SESSION}
        members = {name: value for name, value in everything.items() if name in _TAKEN_OVER}
        if _prescribes_form(everything):
            return None
        choice = as_schema(decode_member(members.get("tool_choice"))).get("type")
    except DECODE_ERRORS:
        return None
    if choice not in _FREE_CHOICES:  # it forces the model to call a tool
        del members["tool_choice"]
    return members


def _prescribes_form(members: dict[str, msgspec.Raw]) -> bool:
    output, form, compaction = (
        decode_member(members.get(name)) for name in ("output_config", "output_format", "compaction")
    )
    return as_schema(output).get("format") is not None or form is not None or compaction is not None


def read_thinking(members: dict[str, msgspec.Raw]) -> int | None:
    """The tokens that a request allows for thinking; `max_tokens` must be larger. 0 if it gives no number.

    None if the request does not turn thinking on. With thinking on, no temperature is accepted.
    """
    thinking: dict[str, Any] = as_schema(decode_member(members.get("thinking")))
    budget = thinking.get("budget_tokens")
    if thinking.get("type") not in _THINKS:
        return None
    return budget if type(budget) is int and budget > 0 else 0


SURE_FACTOR = 2
"""If the client's own limit is this many times that of the summary, it is not exceeded: a model refuses a larger limit
than it has, and Claude Code allows thinking nearly all of its limit. Chosen: this leaves room to think."""
LIMIT = "max_tokens"
_NULL = msgspec.Raw(b"null")
_USER_SIDE = frozenset({Role.USER, Role.TOOL})


class _Block(msgspec.Struct):
    type: str | None = None
    text: str | None = None


class _Completion(msgspec.Struct):
    content: list[_Block]
    stop_reason: str | None = None
    usage: msgspec.Raw = _NULL


class _Delta(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str | None = None
    index: int = 0
    content_block: _Block | None = None
    delta: _Delta | None = None
    message: msgspec.Raw = _NULL
    usage: msgspec.Raw = _NULL


class _Started(msgspec.Struct):
    usage: msgspec.Raw = _NULL


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
    members = write_members(request, is_apart=is_apart)
    if members is None:
        return None
    marked = place_marker(request, take_off_outside(prefix))
    if marked.messages and marked.messages[-1].speaker in _USER_SIDE:
        marked = mark_end(find_markers(request), marked, len(marked.messages) - 1)
    asked = Message(Role.USER, (prompt,), edited=True)
    groups = _group([*zip(marked.messages, marked.origins, strict=True), (asked, None)])
    raws = _bind(request, prefix, members)
    elements = b",".join(write_element(raws, group) for group in groups)
    members["messages"] = msgspec.Raw(b"[" + elements + b"]")
    if (system := write_system(prefix)) is not None:
        members["system"] = msgspec.Raw(system)
    parameters = _write(question, read_thinking(members))
    if request.max_tokens is not None and request.max_tokens >= SURE_FACTOR * question.max_tokens:
        parameters[LIMIT] = min(parameters[LIMIT], request.max_tokens)
    own = {"model": question.model} if is_apart else {}
    return msgspec.json.encode({**members, **own, **parameters})


def _bind(request: Request, prefix: Conversation, members: dict[str, msgspec.Raw]) -> Sequence[bytes]:
    """The elements to ask behind. Thinking in them that no longer fits may be dropped, as in the client's own request.

    Raises one of DECODE_ERRORS.
    """
    if not request.breaks_past or not is_bound(request, prefix):
        return request.raws
    setting = bytes(members.get("thinking", b""))
    if is_off(setting):
        return [drop_thinking(raw) for raw in request.raws]
    if (allowed := allow_drops(setting)) is not None:
        members["thinking"] = msgspec.Raw(allowed)
    return request.raws


def _group(placed: list[Placed]) -> list[list[Placed]]:
    """The messages of each element. A message that a rule made joins its neighbour of the same side."""
    groups: list[list[Placed]] = []
    for message, origin in placed:
        before, start = groups[-1][-1] if groups else (None, None)
        is_apart = origin is not None and start is not None and origin.start != start.start
        if before is None or is_apart or not shares_element(before, message):
            groups.append([])
        groups[-1].append((message, origin))
    return groups


def _write(question: Question, thinking_tokens: int | None) -> dict[str, Any]:
    """The parameters; the limit is required. If the request turns thinking on, the limit must include it."""
    limit = bound_limit(question, question.max_tokens + (thinking_tokens or 0))
    return {LIMIT: limit, **write_parameters(question, (), thinking_tokens=thinking_tokens)}


def read_completion(answer: bytes) -> Completion:
    """The completion in the response to a question, streamed or not. Raises UndecodableError."""
    try:
        events = read_events(answer)
        if events is not None:
            return _join(events)
        decoded = msgspec.json.decode(answer, type=_Completion)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error
    usage: Usage | None = None
    with suppress(*DECODE_ERRORS):
        usage = read_usage(decoded.usage)
    return _tell(decoded, usage)


def _tell(decoded: _Completion, usage: Usage | None) -> Completion:
    return Completion(
        "".join(block.text or "" for block in decoded.content if block.type == "text"),
        usage or Usage(),
        calls_tool=any(block.type == "tool_use" for block in decoded.content),
        was_cut=decoded.stop_reason in {"max_tokens", "model_context_window_exceeded"},
        was_filtered=decoded.stop_reason == "refusal",
    )


def _join(events: list[bytes]) -> Completion:
    """The completion in a stream. Raises UndecodableError without a beginning, or for an error."""
    decoded = [msgspec.json.decode(data, type=_Event) for data in events]
    blocks: dict[int, _Block] = {}
    stop_reason, usage, is_begun = None, None, False
    for event in decoded:
        if event.type == "error":
            is_begun = False
            break
        is_begun |= event.type == "message_start"
        with suppress(*DECODE_ERRORS):
            usage = read_usage(msgspec.json.decode(event.message, type=_Started).usage, usage)
        with suppress(*DECODE_ERRORS):
            usage = read_usage(event.usage, usage)
        if event.content_block is not None:
            blocks[event.index] = event.content_block
        if event.delta is not None:
            stop_reason = event.delta.stop_reason or stop_reason
            block = blocks.setdefault(event.index, _Block("text"))
            block.text = (block.text or "") + (event.delta.text or "")
    if not is_begun:
        message = "no completion in the stream"
        raise UndecodableError(message)
    return _tell(_Completion([*blocks.values()], stop_reason), usage)
