"""What strict upstreams refuse in the tools of a request, in any dialect.

Source: OpenAI's errors "[] is too short" for `tools`, and "'tool_choice' is only allowed when 'tools' are specified",
which `parallel_tool_calls` gets as well. Responses take an empty list, and both members without tools: Codex and
OpenAI's Agents SDK send them.
"""

from collections.abc import Iterator
from typing import Any

Wire = dict[str, Any]

_DEPENDENTS = {"tools": ("tool_choice", "parallel_tool_calls"), "functions": ("function_call",)}


def check_tools(body: Wire) -> list[str]:
    """What is wrong with the tools, and with the choice among them."""
    problems = check_choice(body)
    for key, dependents in _DEPENDENTS.items():
        if body.get(key) == []:
            problems.append(f"{key}: [] is too short")
        problems += [
            f"{name} is only allowed when {key} are specified"
            for name in dependents
            if body.get(name) is not None and not body.get(key)
        ]
    return problems


def check_choice(body: Wire) -> list[str]:
    """What is wrong with the choice, for an API that also takes one among no tools."""
    declared = set(name_tools(body))
    return [
        f"{name} is chosen, but not declared" for name in _find_names(body.get("tool_choice")) if name not in declared
    ]


def name_tools(body: Wire) -> list[str]:
    """The names of all declared tools, in order."""
    listed = [*(body.get("tools") or ()), *(body.get("functions") or ())]
    return [name for tool in listed for name in _find_declared(tool)]


def _find_declared(tool: Any) -> Iterator[str]:
    if not isinstance(tool, dict):
        return
    if isinstance(tool.get("tools"), list):
        yield from (name for inner in tool["tools"] for name in _find_declared(inner))
        return
    nested = next((tool[key] for key in ("function", "custom") if isinstance(tool.get(key), dict)), tool)
    if isinstance(nested.get("name"), str):
        yield nested["name"]


def _find_names(choice: Any) -> Iterator[str]:
    if isinstance(choice, dict):
        yield from [choice["name"]] if isinstance(choice.get("name"), str) else []
        for value in choice.values():
            yield from _find_names(value)
    elif isinstance(choice, list):
        for value in choice:
            yield from _find_names(value)
