"""Which parts of a request's JSON are counted, and in which form.

Law: never raises. A value of an unexpected type is counted by its JSON.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trimtab.proxy.wire.content.cache_help import CACHE_MARKERS
from trimtab.proxy.wire.content.schemas import as_list, has_too_many_parts, read_format, write_compact
from trimtab.proxy.wire.json.decode import DECODE_ERRORS, decode_any, decode_items, decode_members
from trimtab.rules.tokens.messages import NO_CHOICE, Surroundings
from trimtab.rules.tokens.tool_schemas import as_schema

SEALED_FRAME_BYTES = 650
"""Bytes of encrypted reasoning that are not text: its header, its signature, its padding. Source: Codex."""
BYTES_PER_TOKEN = 4
"""Bytes of reasoning per token. Source: Codex."""
TOLERATED_BYTES = 32
"""A member up to this size that is not counted is ignored. Chosen: it can be null, empty, or a number."""

_COUNTED = frozenset({"input", "instructions", "tools", "tool_choice", "text"})
_WITHOUT_TOKENS = frozenset(
    {
        "model", "stream", "stream_options", "max_output_tokens", "max_tool_calls", "temperature", "top_p", "top_k",
        "top_logprobs", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty", "user", "metadata", "store",
        "include", "service_tier", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention",
        "prompt_cache_options", "safety_identifier", "reasoning", "background", "client_metadata", "moderation",
        "cache_prompt", "id_slot",
    }
)  # fmt: skip
"""Members that no server puts into the prompt. Source: the API references of OpenAI, vLLM and llama.cpp. Any other
member may add to the prompt or take from it: `prompt`, `context_management`, `truncation`, and future ones."""
_COUNTED_OF_ITEM = frozenset(
    {
        "type", "id", "role", "content", "status", "phase", "summary", "encrypted_content", "call_id", "name",
        "arguments", "input", "output", "action", "actions", "operation", "approval_request_id", "approve", "reason",
        "internal_chat_message_metadata_passthrough", *CACHE_MARKERS,
    }
)  # fmt: skip
_NOT_READ = frozenset({"type", "strict"})
"""Members of a function that say how it is written and enforced here; the model does not read them."""
_COUNTED_OF_PART = frozenset({"type", "text", "refusal", "logprobs", "stdout", "stderr", "outcome", *CACHE_MARKERS})


def count_sealed(chars: int) -> int:
    """Tokens of encrypted reasoning, by the length of its base64 text."""
    return max(chars * 3 // 4 - SEALED_FRAME_BYTES, 0) // BYTES_PER_TOKEN


def has_uncounted(members: dict[str, msgspec.Raw]) -> bool:
    """Whether an item or a part of it has members that are not counted but that a server may render.

    Raises one of DECODE_ERRORS.
    """
    if _is_uncounted(members, _COUNTED_OF_ITEM):
        return True
    for name in ("content", "output"):
        listed = bytes(members.get(name, b""))
        parts = map(bytes, decode_items(listed)) if listed[:1] == b"[" else ()
        if any(part[:1] == b"{" and _is_uncounted(decode_members(part), _COUNTED_OF_PART) for part in parts):
            return True
    return False


def _is_uncounted(members: dict[str, msgspec.Raw], counted: frozenset[str]) -> bool:
    return any(len(bytes(members[name])) > TOLERATED_BYTES for name in members.keys() - counted)


def counts_all(members: Mapping[str, msgspec.Raw]) -> bool:
    """Whether each member of a body is counted, or is known to cost no tokens. One that is null or off has no effect.

    A server that truncates the transcript itself may read less than is counted.
    """
    used = {name for name, value in members.items() if bytes(value) not in (b"null", b'"disabled"')}
    return used <= _COUNTED | _WITHOUT_TOKENS


def read_surroundings(fixed: Sequence[bytes]) -> Surroundings:
    """Read the members outside the transcript that cost tokens, except the instructions.

    `fixed` is the JSON of `tools`, `tool_choice` and `text`, in this order; empty if the request does not have the
    member.
    """
    if not has_too_many_parts(fixed):
        try:
            return _read_surroundings(*(decode_any(raw) if raw else None for raw in fixed))
        except DECODE_ERRORS:
            pass
    return Surroundings(others=tuple(raw.decode("utf-8", "replace") for raw in fixed if raw))


def _read_surroundings(tools: Any, tool_choice: Any, text: Any) -> Surroundings:
    listed = [one for tool in as_list(tools) for one in _flatten(tool)]
    functions = [_as_function(tool) for tool in listed if _is_function(tool)]
    return Surroundings(
        functions=functions,
        functions_json=write_compact([{"type": "function", "function": function} for function in functions]),
        others=[write_compact(tool) for tool in listed if not _is_function(tool)],
        choice=_read_choice(tool_choice),
        format_texts=tuple(read_format(as_schema(as_schema(text).get("format")))),
    )


def _flatten(tool: Any) -> Iterator[Any]:
    """A tool; of a namespace its own name and description, and then its tools.

    Of a tool that the model has yet to search for, it reads only the name and the description.
    """
    inner = as_schema(tool).get("tools")
    if as_schema(tool).get("type") == "namespace" and isinstance(inner, list):
        yield {name: value for name, value in tool.items() if name != "tools"}
        listed = inner
    else:
        listed = [tool]
    for one in listed:
        if as_schema(one).get("defer_loading") is True:
            yield {name: one[name] for name in ("name", "description") if name in one}
        else:
            yield one


def _is_function(tool: Any) -> bool:
    return as_schema(tool).get("type") == "function"


def _as_function(tool: dict[str, Any]) -> dict[str, Any]:
    """A function without the members that only say how it is written here; clients of chat completions may nest it."""
    inner = tool.get("function")
    return inner if isinstance(inner, dict) else {name: value for name, value in tool.items() if name not in _NOT_READ}


def _read_choice(choice: Any) -> str | None:
    """The name of the function that must be called; NO_CHOICE if none may be called; else None."""
    if isinstance(choice, str):
        return NO_CHOICE if choice == NO_CHOICE else None
    name = as_schema(choice).get("name")
    return name if isinstance(name, str) else None
