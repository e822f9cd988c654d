"""Which parts of a request's JSON are counted, and in which form.

Law: never raises. A value of an unexpected type is counted by its JSON.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from trimtab.proxy.wire.content.cache_help import CACHE_MARKERS
from trimtab.proxy.wire.content.parts import has_uncounted
from trimtab.proxy.wire.content.schemas import as_list, read_choice, read_format, write_compact
from trimtab.rules.tokens.messages import Surroundings
from trimtab.rules.tokens.tool_schemas import as_schema

SEALED_FRAME_BYTES = 650
"""Bytes of encrypted reasoning that are not text: its header, its signature, its padding. Source: Codex."""
BYTES_PER_TOKEN = 4
"""Bytes of reasoning per token. Source: Codex."""
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
_COUNTED_OF_PARTS = dict.fromkeys(
    ("content", "output"),
    frozenset({"type", "text", "refusal", "logprobs", "stdout", "stderr", "outcome", *CACHE_MARKERS}),
)


def count_sealed(chars: int) -> int:
    """Tokens of encrypted reasoning, by the length of its base64 text."""
    return max(chars * 3 // 4 - SEALED_FRAME_BYTES, 0) // BYTES_PER_TOKEN


def lacks_count(members: dict[str, msgspec.Raw]) -> bool:
    """Whether an item or a part of it has members that are not counted but that a server may render.

    Raises one of DECODE_ERRORS.
    """
    return has_uncounted(members, _COUNTED_OF_ITEM, _COUNTED_OF_PARTS)


def counts_all(members: Mapping[str, msgspec.Raw]) -> bool:
    """Whether each member of a body is counted, or is known to cost no tokens. One that is null or off has no effect.

    A server that truncates the transcript itself may read less than is counted.
    """
    used = {name for name, value in members.items() if bytes(value) not in (b"null", b'"disabled"')}
    return used <= _COUNTED | _WITHOUT_TOKENS


def read_surroundings(tools: Any, tool_choice: Any, text: Any) -> Surroundings:
    """What the members outside the transcript cost, except the instructions; None for a missing one."""
    listed = [one for tool in as_list(tools) for one in _flatten(tool)]
    functions = [_as_function(tool) for tool in listed if _is_function(tool)]
    return Surroundings(
        functions=functions,
        functions_json=write_compact([{"type": "function", "function": function} for function in functions]),
        others=[write_compact(tool) for tool in listed if not _is_function(tool)],
        choice=read_choice(tool_choice),
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
