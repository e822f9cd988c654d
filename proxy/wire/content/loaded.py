"""Finds the tools that a search has loaded: the model can call them because a message names or declares them.

Law: never raises. Source: Anthropic's page on tool search, and OpenAI's.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from proxy.wire.content.schemas import decode_or_none

_REFERENCE = "tool_reference"
_MARK = b'"tool_reference"'
_CALL = "tool_use"
MAX_DEPTH = 8
"""Nothing is looked for in deeper values. Chosen: a reference is four deep."""


def find_referenced(raw: bytes) -> tuple[str, ...]:
    """The names in the references of a message, as Messages has them."""
    if _MARK not in raw:
        return ()
    return tuple(dict.fromkeys(_walk(decode_or_none(msgspec.Raw(raw)), MAX_DEPTH)))


def _walk(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, list) and depth:
        for one in value:
            yield from _walk(one, depth - 1)
    elif isinstance(value, dict) and depth:
        kind = value.get("type")
        if kind == _REFERENCE and isinstance(value.get("tool_name"), str):
            yield value["tool_name"]
        elif kind != _CALL:
            for one in value.values():
                yield from _walk(one, depth - 1) if isinstance(one, list | dict) else ()


def find_declared(tools: msgspec.Raw | None) -> tuple[str, ...]:
    """The names of the tools in a list of declarations, also of those in a namespace."""
    return tuple(dict.fromkeys(_name(decode_or_none(tools), MAX_DEPTH)))


def _name(tools: Any, depth: int) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) and depth else ():
        if isinstance(tool, dict):
            nested = tool.get("function")
            name = nested.get("name") if isinstance(nested, dict) else tool.get("name")
            yield from [name] if isinstance(name, str) else []
            yield from _name(tool.get("tools"), depth - 1)
