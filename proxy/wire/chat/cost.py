"""Which parts of a chat request's JSON are counted, and in which form.

Law: never raises. A value of an unexpected type is counted by its JSON.
"""

from dataclasses import replace
from typing import Any

import msgspec

from trimtab.proxy.wire.content.schemas import (
    as_counted,
    as_list,
    decode_or_none,
    read_choice,
    read_format,
    write_compact,
)
from trimtab.rules.conversation import CountTokens, Message
from trimtab.rules.tokens.families import Costs
from trimtab.rules.tokens.messages import LEGACY_CALL_TOKENS, Surroundings, count_message
from trimtab.rules.tokens.tool_schemas import as_schema

EXTRA_TEXT_KEYS = ("reasoning_content", "reasoning", "refusal")
"""Members of assistant messages, outside `content`, whose texts upstreams put into the prompt."""
REASONING_KEYS = ("reasoning_details", "thinking_blocks")
"""Members that hold such texts as lists of parts. Source: OpenRouter; LiteLLM."""
SEALED_CHARS_PER_TOKEN = 6
"""Base64 characters per token of encrypted reasoning. Chosen: four characters of text make about one token, and base64
needs 5.3 characters for them."""


def count_wire_message(message: Message, members: dict[str, msgspec.Raw], count: CountTokens, costs: Costs) -> int:
    """Prompt tokens of a message. `members` may hold more that is counted, such as reasoning."""
    extra = [text for key in EXTRA_TEXT_KEYS if isinstance(text := decode_or_none(members.get(key)), str)]
    if message.tool_calls:
        message = replace(message, tool_calls=tuple(map(as_counted, message.tool_calls)))
    tokens = count_message(message, count, costs, extra)
    if not extra:
        tokens += sum(_count_reasoning(decode_or_none(members.get(key)), count) for key in REASONING_KEYS)
    legacy = as_schema(decode_or_none(members.get("function_call")))
    if legacy:
        tokens += LEGACY_CALL_TOKENS + sum(count(_as_text(legacy.get(key))) for key in ("name", "arguments"))
    return tokens


def read_surroundings(
    tools: Any, functions: Any, tool_choice: Any, function_call: Any, response_format: Any
) -> Surroundings:
    """What the members outside the messages cost; None for a missing one."""
    legacy = as_list(functions)
    listed = [*as_list(tools), *(item for item in legacy if not isinstance(item, dict))]
    wrapped = [tool for tool in listed if isinstance(as_schema(tool).get("function"), dict)]
    bare = [item for item in legacy if isinstance(item, dict)]
    return Surroundings(
        functions=[*(tool["function"] for tool in wrapped), *bare],
        functions_json=write_compact([*wrapped, *bare]),
        others=[write_compact(tool) for tool in listed if not isinstance(as_schema(tool).get("function"), dict)],
        choice=read_choice(tool_choice if tool_choice is not None else function_call),
        format_texts=tuple(read_format(as_schema(as_schema(response_format).get("json_schema")))),
    )


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else write_compact(value)


def _count_reasoning(parts: Any, count: CountTokens) -> int:
    """Tokens of reasoning in parts: texts are counted, encrypted parts are estimated by their length."""
    tokens = 0
    for part in map(as_schema, parts if isinstance(parts, list) else ()):
        texts = [part.get(key) for key in ("text", "thinking", "summary")]
        tokens += sum(count(text) for text in texts if isinstance(text, str))
        sealed = part.get("data")
        tokens += len(sealed) // SEALED_CHARS_PER_TOKEN if isinstance(sealed, str) else 0
    return tokens
