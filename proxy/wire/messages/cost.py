"""Which parts of a request's JSON are counted, and in which form.

Law: never raises on decoded JSON. A value of an unexpected type is counted by its JSON.

All thinking is counted, in every assistant message. This assumes what models from Opus 4.5 on do: they keep it, unless
`context_management` clears it. Older models drop the thinking before the last user message that has more than results,
so for them the count is an upper bound. For the turn that is under way it is never too low. Thinking that is shown
shortened or not at all is in the signature; it is estimated by the signature's length.

Source: Anthropic's pages on context windows, on thinking and on context editing (`clear_thinking_20251015`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from trimtab.proxy.wire.content.media import PartCost, count_part, guess_data, take_payloads
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
from trimtab.rules.tokens.messages import Surroundings, count_message
from trimtab.rules.tokens.tool_schemas import as_schema

THINKING = frozenset({"thinking", "redacted_thinking"})
SEALED_CHARS_PER_TOKEN = 6
"""Base64 characters per token of encrypted text. Chosen: four characters of text make about one token, and base64 needs
5.3 characters for them."""
_SEALED = frozenset({"encrypted_content", "encrypted_stdout", "encrypted_index", "signature"})
_NO_PARAMETERS = ("cache_control", "type")


def count_said(
    message: Message, thinking: Sequence[Mapping[str, msgspec.Raw]], count: CountTokens, costs: Costs
) -> int:
    """Prompt tokens of a message. `thinking`: the members of its blocks of thinking."""
    if message.tool_calls:
        message = replace(message, tool_calls=tuple(map(as_counted, message.tool_calls)))
    return count_message(message, count, costs) + sum(_count_thinking(block, count) for block in thinking)


def _count_thinking(block: Mapping[str, msgspec.Raw], count: CountTokens) -> int:
    """The text, or what its signature hides if that is more."""
    text, signature, data = (decode_or_none(block.get(key)) for key in ("thinking", "signature", "data"))
    shown = count(text) if isinstance(text, str) else 0
    sealed = max((len(value) for value in (signature, data) if isinstance(value, str)), default=0)
    return max(shown, sealed // SEALED_CHARS_PER_TOKEN)


def count_block(raw: bytes, count: CountTokens, costs: Costs) -> PartCost:
    """Tokens of a block that is neither text, thinking nor a client's tool call or result."""
    block = decode_or_none(msgspec.Raw(raw))
    kind = as_schema(block).get("type")
    if kind == "document":
        return _count_document(as_schema(block), count, costs)
    if not isinstance(kind, str) or "image" in kind:
        return count_part(raw, count, costs)
    try:
        open_part, sealed_chars = _unseal(block)
        open_part, guessed = take_payloads(open_part)
    except RecursionError:
        return PartCost(count(raw.decode("utf-8", "replace")))
    return PartCost(count(write_compact(open_part)) + sealed_chars // SEALED_CHARS_PER_TOKEN + guessed, guessed)


def _count_document(block: dict[str, Any], count: CountTokens, costs: Costs) -> PartCost:
    """Tokens of a document: its title and context, and its text, its own blocks, or a guess by its bytes."""
    source = as_schema(block.get("source"))
    tokens = sum(count(text) for key in ("title", "context") if isinstance(text := block.get(key), str))
    data, kind, media_type = source.get("data"), source.get("type"), source.get("media_type")
    if kind == "text" and isinstance(data, str):
        return PartCost(tokens + count(data))
    if kind == "content":
        inner = [_count_inner(part, count, costs) for part in as_list(source.get("content"))]
        return PartCost(tokens + sum(cost.tokens for cost in inner), sum(cost.guessed for cost in inner))
    hint = media_type if isinstance(media_type, str) else ""
    guessed = guess_data(data if isinstance(data, str) else None, hint)
    return PartCost(tokens + guessed, guessed)


def _count_inner(part: Any, count: CountTokens, costs: Costs) -> PartCost:
    text = part if isinstance(part, str) else as_schema(part).get("text")
    return PartCost(count(text)) if isinstance(text, str) else count_part(msgspec.json.encode(part), count, costs)


def _unseal(value: Any) -> tuple[Any, int]:
    """A value without its encrypted texts, and the characters that these have. Raises RecursionError."""
    if isinstance(value, list):
        parts = [_unseal(item) for item in value]
        return [part for part, _ in parts], sum(chars for _, chars in parts)
    if not isinstance(value, dict):
        return value, 0
    sealed = {key for key, item in value.items() if key in _SEALED and isinstance(item, str)}
    members = {key: _unseal(item) for key, item in value.items() if key not in sealed}
    chars = sum(len(value[key]) for key in sealed) + sum(chars for _, chars in members.values())
    return {key: part for key, (part, _) in members.items()}, chars


def read_surroundings(tools: Any, tool_choice: Any, output_config: Any, output_format: Any) -> Surroundings:
    """What the members outside the messages cost, except `system`; None for a missing one.

    All tools are counted, also those that a server loads only on demand.
    """
    listed = as_list(tools)
    functions = [_as_function(tool) for tool in listed if _is_function(tool)]
    form = as_schema(as_schema(output_config).get("format")) or as_schema(output_format)
    return Surroundings(
        functions=functions,
        functions_json=write_compact([{"type": "function", "function": function} for function in functions]),
        others=[write_compact(tool) for tool in listed if not _is_function(tool)],
        choice=read_choice(tool_choice),
        format_texts=tuple(read_format(form)),
    )


def _is_function(tool: Any) -> bool:
    """Whether a tool is the client's own. Other tools have a type with a date, and the server knows what they are."""
    return isinstance(tool, dict) and isinstance(tool.get("input_schema"), dict)


def _as_function(tool: dict[str, Any]) -> dict[str, Any]:
    members = {name: value for name, value in tool.items() if name not in _NO_PARAMETERS}
    return {("parameters" if name == "input_schema" else name): value for name, value in members.items()}
