"""Reads the tools and schemas of a request in the form in which they are counted.

Law: never raises on decoded JSON.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from trimtab.proxy.wire.json.decode import DECODE_ERRORS, decode_any
from trimtab.proxy.wire.json.spans import has_more_parts
from trimtab.rules.tokens.messages import NO_CHOICE, ToolsAndFormat
from trimtab.rules.tokens.tool_schemas import as_schema

MAX_DECODED_PARTS = 100_000
"""Tools and other members outside the messages with more strings and commas are counted by their JSON, undecoded.
Chosen: bounds the work; real requests have far fewer."""
_DROPPED = frozenset({"additionalProperties"})
_NAMED = frozenset({"properties", "$defs", "definitions"})


def as_list(value: Any) -> list[Any]:
    """The items of a list. Any other value except None is one item."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def write_compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _strip(value: Any) -> Any:
    """A schema without the titles of its parts and without `additionalProperties`, which servers do not render."""
    if isinstance(value, list):
        return list(map(_strip, value))
    if not isinstance(value, dict):
        return value
    stripped: dict[str, Any] = {}
    for key, item in value.items():
        if key in _NAMED and isinstance(item, dict):  # a property may have any name, such as `title`
            stripped[key] = {name: _strip(inner) for name, inner in item.items()}
        elif key not in _DROPPED and not (key == "title" and isinstance(item, str)):
            stripped[key] = _strip(item)
    return stripped


def decode_or_none(raw: msgspec.Raw | None) -> Any:
    if raw is None:
        return None
    try:
        return decode_any(bytes(raw))
    except DECODE_ERRORS:
        return None


def read_format(described: Any) -> Iterator[str]:
    """Name, description and schema of a response format, as texts. Yields nothing for a format without a schema."""
    schema = described.get("schema")
    if not isinstance(schema, dict):
        return
    for key in ("name", "description"):
        if isinstance(described.get(key), str):
            yield described[key]
    title = {"title": schema["title"]} if "title" in schema else {}
    yield write_compact({**title, **_strip(schema)})


def has_too_many_parts(raws: Iterable[bytes]) -> bool:
    return any(len(raw) > MAX_DECODED_PARTS and has_more_parts(raw, MAX_DECODED_PARTS) for raw in raws)


def read_fixed(raws: Sequence[bytes], read: Callable[..., ToolsAndFormat]) -> ToolsAndFormat:
    """What members outside the transcript cost, as `read` tells of their values; by their JSON if it cannot be decoded.

    raws: the JSON of each; empty for a missing one, whose value is None.
    """
    if not has_too_many_parts(raws):
        with suppress(*DECODE_ERRORS):
            return read(*(decode_any(raw) if raw else None for raw in raws))
    return ToolsAndFormat(others=tuple(raw.decode("utf-8", "replace") for raw in raws if raw))


def read_choice(choice: Any) -> str | None:
    """The name of the function that must be called; NO_CHOICE if none may be called; else None."""
    if isinstance(choice, str):
        return NO_CHOICE if choice == NO_CHOICE else None
    named = as_schema(choice)
    if named.get("type") == NO_CHOICE:
        return NO_CHOICE
    name = as_schema(named.get("function")).get("name") or named.get("name")
    return name if isinstance(name, str) else None


def forces_call(choice: Any) -> bool:
    """Whether a choice of tools, in any dialect, makes the model call one."""
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools")
        choice = allowed if isinstance(allowed, dict) else choice
        choice = choice.get("mode") or choice.get("type") or choice
    return choice not in (None, "auto", "none")
