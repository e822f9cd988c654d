"""Anthropic's compaction on demand: a signed block, which is sent first in place of the messages that it stands for.

The block is an assistant's. Each request that has it needs the beta header, and no other element may be before it.

Law: total. An answer without exactly one signed block has no note. Source: Anthropic's page on compaction on demand.
"""

from typing import Any

import msgspec

from trimtab.proxy.wire.answering import Completion, ProviderNote, try_usage
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.json import DECODE_ERRORS, decode_items, decode_member, decode_members
from trimtab.proxy.wire.transcript.body import UndecodableError
from trimtab.rules.tokens.tool_schemas import as_schema

BETA = ("anthropic-beta", "compact-2026-09-04")
MOST_INSTRUCTIONS_CHARS = 16_384
"""Source: the page above."""
_NO_CALLS = "Summarize the conversation, so that the work can be continued from the summary alone. Do not call tools."
"""Begins our instructions, because they replace the provider's own."""
_BLOCK = frozenset({"type", "content", "signature", "encrypted_content"})
_NULL = msgspec.Raw(b"null")


def _finish(members: dict[str, msgspec.Raw], parameters: dict[str, Any], instructions: str) -> dict[str, Any] | None:
    """Without `context_management`, which the API refuses beside it: it edits what only the summariser reads."""
    management = bytes(members.pop("context_management", b""))
    budget = as_schema(as_schema(decode_member(members.get("output_config"))).get("task_budget"))
    first = next(iter(decode_items(members["messages"])), _NULL)
    is_ruled = as_schema(decode_member(first)).get("role") not in {"user", "assistant"}
    if b'"compact_' in management or "remaining" in budget or is_ruled:
        return None
    asked = {"type": "summarize"}
    if instructions:
        asked["instructions"] = f"{_NO_CALLS}\n{instructions}"[:MOST_INSTRUCTIONS_CHARS]
    parameters.pop("temperature", None)  # newer models refuse one
    return {**members, **parameters, "compaction": asked}


class _Event(msgspec.Struct):
    """An event, or a whole answer, which has a `content`."""

    type: str | None = None
    content_block: msgspec.Raw = _NULL
    content: msgspec.Raw = _NULL
    delta: msgspec.Raw = _NULL
    message: msgspec.Raw = _NULL
    usage: msgspec.Raw = _NULL
    stop_reason: str | None = None


class _Counted(msgspec.Struct):
    iterations: list[msgspec.Raw] | None = None


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_counted = msgspec.json.Decoder(_Counted | None).decode


def join(events: list[bytes]) -> Completion:
    blocks: list[bytes] = []
    usage, reason, is_answer = Usage(), None, False
    for event in map(_decode_event, events):
        if event.type == "error":
            message = "an error"
            raise UndecodableError(message)
        is_answer |= event.type == "message_start" or event.content != _NULL
        if event.content != _NULL:
            blocks += map(bytes, decode_items(event.content))
        if event.content_block != _NULL:
            blocks.append(bytes(event.content_block))
        usage = _add_up(event.usage, usage)
        reason = event.stop_reason or as_schema(decode_member(event.delta)).get("stop_reason") or reason
    if not is_answer:
        message = "no answer"
        raise UndecodableError(message)
    members = [decode_members(block) for block in blocks]
    text = "".join(_read_text(block, "text") for block in members)
    if len(blocks) != 1 or not _is_signed(members[0]):
        return Completion(text, usage, was_cut=reason == "max_tokens", was_filtered=reason == "refusal")
    note = b'{"role":"assistant","content":[%b]}' % blocks[0]
    return Completion(_read_text(members[0], "content"), usage, note=note)


def _is_signed(block: dict[str, msgspec.Raw]) -> bool:
    told = [_read_text(block, name).strip() for name in ("content", "signature")]
    return _read_text(block, "type") == "compaction" and all(told) and block.keys() <= _BLOCK


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


NOTE = ProviderNote("", (BETA,), _finish, join)
