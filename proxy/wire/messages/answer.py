"""Reads the response to a request: its usage, its texts, its errors, and the provider's own note on a conversation.

Law: no I/O. Nothing is raised, whatever the input is, except by `join` and `join_note`. Errors are written in the same
form.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.answering import (
    PROMPT_TOO_LONG,
    Completion,
    ErrorText,
    ProviderNote,
)
from trimtab.proxy.wire.answers.sse import MAX_EMPTY_EVENT_BYTES, write_event
from trimtab.proxy.wire.answers.tap import Piece
from trimtab.proxy.wire.answers.usage import NULL, Usage, try_inner_usage, try_usage
from trimtab.proxy.wire.json import DECODE_ERRORS, decode_items, decode_member, decode_members, try_decode
from trimtab.proxy.wire.overflow import Kind, Overflow, read_overflow
from trimtab.proxy.wire.transcript.body import UndecodableError
from trimtab.rules.tokens.messages import as_schema

EXCEEDED = "model_context_window_exceeded"  # `stop_reason` of a full window; without a text, the prompt was too long
_TYPES = {
    "invalid_api_key": "authentication_error",
    "client_limit_reached": "rate_limit_error",
    "client_budget_spent": "rate_limit_error",
    "overloaded": "overloaded_error",
    "upstream_timeout": "timeout_error",
    "not_found": "not_found_error",
    "path_not_allowed": "not_found_error",
}
"""Anthropic's `type` of an error, by our code."""


class _Block(msgspec.Struct):
    """A block of the content, or what an event adds to one."""

    type: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    content: msgspec.Raw = NULL
    input: msgspec.Raw = NULL


class _Answer(msgspec.Struct):
    """A response or an event. Members of an unexpected form are decoded one by one, and suppress only themselves."""

    type: Any = None
    index: Any = 0
    delta: msgspec.Raw = NULL
    content_block: msgspec.Raw = NULL
    content: msgspec.Raw = NULL
    message: msgspec.Raw = NULL
    usage: msgspec.Raw = NULL
    stop_reason: Any = None


_OTHERS = ("content_block_start", "content_block_delta", "content_block_stop", "ping", "error")
"""The events that say nothing of the usage. Source: Anthropic's API."""
_TEXT_TYPES = ("text", "thinking", "text_delta", "thinking_delta")
_COMPACTIONS = frozenset({"compaction", "compaction_delta"})
_NOTHING = frozenset({b"null", b"{}", b'""'})
_decode = msgspec.json.Decoder(_Answer).decode
_decode_block = msgspec.json.Decoder(_Block | None).decode
_decode_blocks = msgspec.json.Decoder(list[_Block] | None).decode


def is_end(data: bytes) -> bool:
    event = try_decode(data)
    return isinstance(event, dict) and event.get("type") == "message_stop"


def is_part_of_answer(line: bytes) -> bool:
    return b'"content_block' in line and b'"error"' not in line


def is_ping(data: bytes) -> bool:
    return b'"ping"' in data and b'"error"' not in data


def is_greeting(data: bytes) -> bool:
    """`message_start`, and blocks that are empty so far."""
    if b'"content_block' not in data:
        return b'"message_start"' in data and b'"error"' not in data
    event = try_decode(data) if len(data) <= MAX_EMPTY_EVENT_BYTES else None
    block = (event.get("content_block") or event.get("delta")) if isinstance(event, dict) else None
    if not isinstance(block, dict) or block.get("type") not in _TEXT_TYPES:
        return False
    return not any(value for name, value in block.items() if name != "type")


def read_answer(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece] | None]:
    try:
        answer = _decode(data)
    except DECODE_ERRORS:
        return usage, None  # an error in another form, or garbage
    pieces: list[Piece] = []
    if answer.delta != NULL and answer.usage == NULL:
        with suppress(*DECODE_ERRORS):
            delta = _decode_block(answer.delta)
            pieces += _read_block(delta, _read_index(answer)) if delta else ()
        return usage, pieces
    if answer.type == "message_start":
        usage = try_inner_usage(answer.message, usage)
    if answer.type not in _OTHERS:
        usage = try_usage(answer.usage, usage)
    with suppress(*DECODE_ERRORS):
        block = _decode_block(answer.content_block)
        pieces += _read_block(block, _read_index(answer)) if block else ()
    with suppress(*DECODE_ERRORS):
        blocks = _decode_blocks(answer.content) or ()
        pieces += [piece for index, block in enumerate(blocks) for piece in _read_block(block, index)]
    return usage, pieces


def _read_index(answer: _Answer) -> int:
    return answer.index if isinstance(answer.index, int) else 0


def _read_block(block: _Block, index: int) -> Iterator[Piece]:
    """The pieces of a block or a delta. Results of server tools are not written by the model."""
    told = {"text": block.text, "name": block.name, "input": block.partial_json}
    if block.input != NULL and bytes(block.input) not in _NOTHING:
        told["input"] = bytes(block.input).decode("utf-8", "replace")
    if block.content != NULL and block.type in _COMPACTIONS:
        summary = try_decode(bytes(block.content))
        told["content"] = summary if isinstance(summary, str) else None
    yield from (Piece((index, kind), text) for kind, text in told.items() if text)
    if block.thinking:
        yield Piece((index, "thinking"), block.thinking, is_reasoning=True)


def read_empty_answer(body: bytes) -> Overflow | None:
    """The overflow in an error, or in a completion without text whose `stop_reason` is EXCEEDED."""
    answer = try_decode(body)
    if not isinstance(answer, dict) or not {"delta", "content", "content_block"} & answer.keys():
        return None if isinstance(answer, dict) and answer.get("type") == "message_start" else read_overflow(200, body)
    delta = answer.get("delta")
    ended = delta if isinstance(delta, dict) else answer
    # Not by the usage: an empty response may report one token.
    is_refusal = ended.get("stop_reason") == EXCEEDED and not answer.get("content")
    return Overflow(Kind.PROMPT) if is_refusal else None


def describe_error(error: ErrorText) -> dict[str, Any]:
    """Our own code is beside Anthropic's type."""
    message, kind = error.message, _TYPES.get(error.code, error.type)
    if error.code == PROMPT_TOO_LONG:
        # The words by which clients of this API recognise that a prompt is too long. Source: Anthropic's API.
        tokens, limit = error.tokens, error.limit_tokens
        excess = "" if tokens is None or limit is None else f"{max(tokens, limit + 1)} tokens > {limit} maximum. "
        message = f"prompt is too long: {excess}{message}"
    elif kind == "trimtab_error":
        kind = "api_error"
    said = {"type": kind, "message": message, "code": error.code, **error.more}
    return said if error.param is None else {**said, "param": error.param}


def write_error_body(described: dict[str, Any]) -> bytes:
    return orjson.dumps({"type": "error", "error": described})


def write_failure(described: dict[str, Any]) -> bytes:
    return write_event(write_error_body(described), b"error")


def write_answer(status: int, body: bytes) -> bytes | None:
    """As events; None for an error in another form than Anthropic's."""
    members = try_decode(body)
    members = members if isinstance(members, dict) else {}
    if status == 200:
        started = orjson.dumps({"type": "message_start", "message": orjson.Fragment(body)}) if members else body
        return write_event(started, b"message_start") + write_event(b'{"type":"message_stop"}', b"message_stop")
    return write_event(body, b"error") if isinstance(members.get("error"), dict) else None


class _Said(msgspec.Struct):
    """Of a block or a delta only what a summary is read from, so that whatever else a server writes loses none."""

    type: str | None = None
    text: str | None = None
    stop_reason: str | None = None


_decode_said = msgspec.json.Decoder(_Said | None).decode
_decode_all_said = msgspec.json.Decoder(list[_Said] | None).decode


def join(events: list[bytes]) -> Completion:
    """The completion. Raises UndecodableError without a beginning, or for an error."""
    blocks: dict[int, _Said] = {}
    reason, usage, is_begun = None, None, False
    for event in map(_decode, events):
        if event.type == "error":
            raise UndecodableError("an error")
        is_begun |= event.type == "message_start" or event.content != NULL
        usage = try_usage(event.usage, try_inner_usage(event.message, usage))
        blocks |= enumerate(_decode_all_said(event.content) or ())
        if (begun := _decode_said(event.content_block)) is not None:
            blocks[_read_index(event)] = begun
        if (delta := _decode_said(event.delta)) is not None:
            reason = delta.stop_reason or reason
            block = blocks.setdefault(_read_index(event), _Said("text"))
            block.text = (block.text or "") + (delta.text or "")
        reason = event.stop_reason or reason
    if not is_begun:
        raise UndecodableError("no completion")
    return Completion(
        "".join(block.text or "" for block in blocks.values() if block.type == "text"),
        usage or Usage(),
        calls_tool=any(block.type == "tool_use" for block in blocks.values()),
        was_cut=reason in {"max_tokens", EXCEEDED},
        was_filtered=reason == "refusal",
    )


# Compaction on demand: a signed block, which is sent first in place of the messages that it stands for. The block is an
# assistant's. Each request that has it needs the beta header, and no other element may be before it. An answer without
# exactly one signed block has no note. Source: Anthropic's page on compaction on demand.
BETA = ("anthropic-beta", "compact-2026-09-04")
MOST_INSTRUCTIONS_CHARS = 16_384  # source: the page above
_NO_CALLS = "Summarize the conversation, so that the work can be continued from the summary alone. Do not call tools."
"""Begins our instructions, because they replace the provider's own."""
_BLOCK = frozenset({"type", "content", "signature", "encrypted_content"})


def _finish(members: dict[str, msgspec.Raw], parameters: dict[str, Any], instructions: str) -> dict[str, Any] | None:
    """Without `context_management`, which the API refuses beside it: it edits what only the summariser reads."""
    management = bytes(members.pop("context_management", b""))
    budget = as_schema(as_schema(decode_member(members.get("output_config"))).get("task_budget"))
    first = next(iter(decode_items(members["messages"])), NULL)
    is_ruled = as_schema(decode_member(first)).get("role") not in {"user", "assistant"}
    if b'"compact_' in management or "remaining" in budget or is_ruled:
        return None
    asked = {"type": "summarize"}
    if instructions:
        asked["instructions"] = f"{_NO_CALLS}\n{instructions}"[:MOST_INSTRUCTIONS_CHARS]
    parameters.pop("temperature", None)  # newer models refuse one
    return {**members, **parameters, "compaction": asked}


class _Counted(msgspec.Struct):
    iterations: list[msgspec.Raw] | None = None


_decode_counted = msgspec.json.Decoder(_Counted | None).decode


def join_note(events: list[bytes]) -> Completion:
    blocks: list[bytes] = []
    usage, reason, is_answer = Usage(), None, False
    for event in map(_decode, events):
        if event.type == "error":
            raise UndecodableError("an error")
        is_answer |= event.type == "message_start" or event.content != NULL
        if event.content != NULL:
            blocks += map(bytes, decode_items(event.content))
        if event.content_block != NULL:
            blocks.append(bytes(event.content_block))
        usage = _add_up(event.usage, usage)
        reason = event.stop_reason or as_schema(decode_member(event.delta)).get("stop_reason") or reason
    if not is_answer:
        raise UndecodableError("no answer")
    members = [decode_members(block) for block in blocks]
    text = "".join(_read_text(block, "text") for block in members)
    first = members[0] if len(blocks) == 1 else {}
    is_compaction = _read_text(first, "type") == "compaction" and first.keys() <= _BLOCK
    if not is_compaction or not all(_read_text(first, name).strip() for name in ("content", "signature")):
        return Completion(text, usage, was_cut=reason == "max_tokens", was_filtered=reason == "refusal")
    note = b'{"role":"assistant","content":[%b]}' % blocks[0]
    return Completion(_read_text(first, "content"), usage, note=note)


def _read_text(block: dict[str, msgspec.Raw], name: str) -> str:
    value = decode_member(block.get(name))
    return value if isinstance(value, str) else ""


def _add_up(raw: msgspec.Raw, before: Usage) -> Usage:
    """The usage of all iterations: the counts of an answer without a reply are zero."""
    try:
        counted = _decode_counted(raw)
    except DECODE_ERRORS:
        counted = None
    iterations = (counted.iterations if counted is not None else None) or []
    used = [one for one in (try_usage(iteration) for iteration in iterations) if one is not None]
    if not used:
        return before
    return Usage(
        sum(one.prompt_tokens or 0 for one in used),
        sum(one.completion_tokens or 0 for one in used),
        sum(one.cached_tokens or 0 for one in used),
        written_tokens=sum(one.written_tokens or 0 for one in used),
    )


NOTE = ProviderNote("", (BETA,), _finish, join_note)
