"""Which parts of a chat request's JSON are counted, and in which form.

Law: never raises. A value of an unexpected type is counted by its JSON.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from proxy.wire.json.repair import DECODE_ERRORS, decode_any, decode_member
from proxy.wire.json.spans import has_more_parts
from rules.conversation import CountTokens, Message, ToolCall
from rules.tokens.families import Costs
from rules.tokens.images import Size, read_size
from rules.tokens.messages import LEGACY_CALL_TOKENS, NO_CHOICE, Surroundings, count_audio, count_file, count_message
from rules.tokens.tool_schemas import as_schema

EXTRA_TEXT_KEYS = ("reasoning_content", "reasoning", "refusal")
"""Members of assistant messages, outside `content`, whose texts upstreams put into the prompt."""
REASONING_KEYS = ("reasoning_details", "thinking_blocks")
"""Members that hold such texts as lists of parts. Source: OpenRouter; LiteLLM."""
SEALED_CHARS_PER_TOKEN = 6
"""Base64 characters per token of encrypted reasoning. Chosen: four characters of text make about one token, and base64
needs 5.3 characters for them."""
MAX_COMPACTED_CHARS = 1024 * 1024
"""Longer arguments of a call are counted as written. Chosen: removing white space takes three times their memory."""
MAX_DECODED_PARTS = 100_000
"""Tools and other members outside the messages with more strings and commas are counted by their JSON, undecoded.
Chosen: bounds the work; real requests have far fewer."""
HEAD_CHARS = 64
"""Base64 characters of an image that are read first for its size. Chosen: enough for PNG, GIF and WebP."""
JPEG_HEAD_CHARS = 256 * 1024
"""Base64 characters of a JPEG that are searched for its size, which comes after its metadata. Chosen: room for three
segments of metadata of the largest size (64 KiB)."""
_WAVES = ("wav", "pcm16")
_TEXTS = ("data:text/", "data:application/json")
_FILES = frozenset({"file", "input_file", "document"})
_DROPPED = frozenset({"additionalProperties"})
_NAMED = frozenset({"properties", "$defs", "definitions"})


def count_wire_message(message: Message, members: dict[str, msgspec.Raw], count: CountTokens, costs: Costs) -> int:
    """Prompt tokens of a message. `members` may hold more that is counted, such as reasoning."""
    extra = [text for key in EXTRA_TEXT_KEYS if isinstance(text := _decode(members.get(key)), str)]
    if message.tool_calls:
        message = replace(message, tool_calls=tuple(map(_as_counted, message.tool_calls)))
    tokens = count_message(message, count, costs, extra)
    if not extra:
        tokens += sum(_count_reasoning(_decode(members.get(key)), count) for key in REASONING_KEYS)
    legacy = as_schema(_decode(members.get("function_call")))
    if legacy:
        tokens += LEGACY_CALL_TOKENS + sum(count(_as_text(legacy.get(key))) for key in ("name", "arguments"))
    return tokens


def count_part(raw: bytes, count: CountTokens, costs: Costs) -> int:
    """Tokens of a content part that is not text: images by their size, audio and files by an upper bound."""
    part = as_schema(_decode(msgspec.Raw(raw)))
    kind = part.get("type")
    if not isinstance(kind, str):
        return count(raw.decode("utf-8", "replace"))
    if "image" in kind:
        return _count_image(part, costs)
    inner = as_schema(part.get(kind)) or part
    if "audio" in kind and isinstance(inner.get("data"), str):
        return count_audio(len(inner["data"]), is_wave=inner.get("format") in _WAVES)
    if kind in _FILES:
        data = inner.get("file_data") or as_schema(part.get("source")).get("data")
        text = data if isinstance(data, str) else ""
        return count_file(len(text) or None, is_text=text.startswith(_TEXTS))
    url = inner.get("url")
    if isinstance(url, str) and url.startswith("data:"):
        return count_file(len(url))
    return count(raw.decode("utf-8", "replace"))


def read_surroundings(fixed: Sequence[bytes]) -> Surroundings:
    """Read the members outside the messages that cost tokens.

    `fixed` is the JSON of `tools`, `functions`, `tool_choice`, `function_call` and `response_format`, in this order;
    empty if the request does not have the member.
    """
    if any(len(raw) > MAX_DECODED_PARTS and has_more_parts(raw, MAX_DECODED_PARTS) for raw in fixed):
        return Surroundings(others=tuple(raw.decode("utf-8", "replace") for raw in fixed if raw))
    try:
        return _read_surroundings(*(decode_any(raw) if raw else None for raw in fixed))
    except DECODE_ERRORS:
        return Surroundings(others=tuple(raw.decode("utf-8", "replace") for raw in fixed if raw))


def _read_surroundings(
    tools: Any, functions: Any, tool_choice: Any, function_call: Any, response_format: Any
) -> Surroundings:
    legacy = _list(functions)
    listed = [*_list(tools), *(item for item in legacy if not isinstance(item, dict))]
    wrapped = [tool for tool in listed if isinstance(as_schema(tool).get("function"), dict)]
    bare = [item for item in legacy if isinstance(item, dict)]
    return Surroundings(
        functions=[*(tool["function"] for tool in wrapped), *bare],
        functions_json=_compact([*wrapped, *bare]),
        others=[_compact(tool) for tool in listed if not isinstance(as_schema(tool).get("function"), dict)],
        choice=_read_choice(tool_choice if tool_choice is not None else function_call),
        format_texts=tuple(_read_format(as_schema(response_format))),
    )


def _decode(raw: msgspec.Raw | None) -> Any:
    """The value of a member; None if it is absent or cannot be decoded."""
    try:
        return decode_member(raw)
    except DECODE_ERRORS:
        return None


def _list(value: Any) -> list[Any]:
    """The items of a list. Any other value except None is one item."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else _compact(value)


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _as_counted(call: ToolCall) -> ToolCall:
    """The call with its arguments as servers render them: JSON without white space. Very long ones stay unchanged."""
    if len(call.arguments) > MAX_COMPACTED_CHARS:
        return call
    try:
        compact = msgspec.json.format(call.arguments.encode(), indent=-1).decode()
    except (*DECODE_ERRORS, UnicodeEncodeError):
        return call
    return replace(call, arguments=compact)


def _count_reasoning(parts: Any, count: CountTokens) -> int:
    """Tokens of reasoning in parts: texts are counted, encrypted parts are estimated by their length."""
    tokens = 0
    for part in map(as_schema, parts if isinstance(parts, list) else ()):
        texts = [part.get(key) for key in ("text", "thinking", "summary")]
        tokens += sum(count(text) for text in texts if isinstance(text, str))
        sealed = part.get("data")
        tokens += len(sealed) // SEALED_CHARS_PER_TOKEN if isinstance(sealed, str) else 0
    return tokens


def _count_image(part: Any, costs: Costs) -> int:
    """Tokens of an image by its size; the most that an image can cost if its bytes are not in the request."""
    image = part.get("image_url")
    inner = as_schema(image) or {"url": image}
    detail = inner.get("detail") or part.get("detail")
    address, data = inner.get("url"), as_schema(part.get("source")).get("data")
    if isinstance(address, str) and address.startswith("data:"):
        data = address[address.find(",") + 1 : address.find(",") + 1 + JPEG_HEAD_CHARS]
    return costs.images.count(read_image_size(data) if isinstance(data, str) else None, low_detail=detail == "low")


def read_image_size(data: str) -> Size | None:
    """The size of an image, read from its base64; None if its first bytes do not contain it."""
    try:
        size = read_size(b64decode(data[:HEAD_CHARS]))
        return size or read_size(b64decode(data[: min(len(data), JPEG_HEAD_CHARS) // 4 * 4]))
    except (binascii.Error, ValueError):
        return None


def _read_choice(choice: Any) -> str | None:
    """The name of the function that must be called; NO_CHOICE if none may be called; else None."""
    if isinstance(choice, str):
        return NO_CHOICE if choice == NO_CHOICE else None
    named = as_schema(choice)
    name = as_schema(named.get("function")).get("name") or named.get("name")
    return name if isinstance(name, str) else None


def _read_format(response_format: Any) -> Iterator[str]:
    """Name, description and schema of a response format, as texts. Yields nothing for a format without a schema."""
    described = as_schema(response_format.get("json_schema"))
    schema = described.get("schema")
    if not isinstance(schema, dict):
        return
    for key in ("name", "description"):
        if isinstance(described.get(key), str):
            yield described[key]
    title = {"title": schema["title"]} if "title" in schema else {}
    yield _compact({**title, **_strip(schema)})


def _strip(value: Any) -> Any:
    """A schema without the titles of its parts and without `additionalProperties`, which servers do not render."""
    if isinstance(value, list):
        return list(map(_strip, value))
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if key not in _DROPPED and not _is_title(key, item)}
    return {key: (_strip_properties if key in _NAMED else _strip)(item) for key, item in kept.items()}


def _strip_properties(value: Any) -> Any:
    # A property may have any name, such as `title`, so names are not compared here.
    return {key: _strip(item) for key, item in value.items()} if isinstance(value, dict) else _strip(value)


def _is_title(key: str, value: Any) -> bool:
    return key == "title" and isinstance(value, str)
