"""What is outside the messages of a chat request, and which parts of it are counted."""

from typing import Any

import orjson
import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.chat.message import read_tools_and_format
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.tools import read_fixed
from trimtab.rules.tokens.families import find_family
from trimtab.rules.tokens.messages import NO_CHOICE, SYSTEM_TOKENS, ToolsAndFormat

GPT = find_family("gpt-4o").costs


def _read(
    tools: Any = None,
    functions: Any = None,
    tool_choice: Any = None,
    function_call: Any = None,
    response_format: Any = None,
) -> ToolsAndFormat:
    values = (tools, functions, tool_choice, function_call, response_format)
    return read_fixed([b"" if value is None else orjson.dumps(value) for value in values], read_tools_and_format)


F, G = {"name": "f"}, {"name": "g", "parameters": {}}
FUNCTION: dict[str, Any] = {"type": "function", "function": F}
CUSTOM: dict[str, Any] = {"type": "custom", "custom": {"name": "sh"}}


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def test_tools_are_functions_or_others() -> None:
    """Functions of either form, others by the JSON of each; no tool is counted twice, and none is left out."""
    assert _read() == _read(tools=[]) == ToolsAndFormat(functions=[], functions_json="[]", others=[])
    mixed = _read(tools=[FUNCTION, CUSTOM, "search", None, {"function": "x"}], functions=[G, 5])
    assert mixed.functions == [F, G]
    assert mixed.functions_json == _json([FUNCTION, G])
    assert mixed.others == [_json(item) for item in (CUSTOM, "search", None, {"function": "x"}, 5)]
    assert _read(tools={"a": 1}, functions="x").others == ['{"a":1}', '"x"']


@pytest.mark.parametrize(
    ("choices", "choice"),
    [
        ({}, None),
        ({"tool_choice": "none"}, NO_CHOICE),
        ({"function_call": "none"}, NO_CHOICE),
        ({"tool_choice": "auto", "function_call": "none"}, None),
        ({"tool_choice": FUNCTION}, "f"),
        ({"function_call": {"name": "f"}}, "f"),
        ({"tool_choice": CUSTOM}, None),
    ],
)
def test_a_choice_is_of_one_function_or_of_none(choices: dict[str, Any], choice: str | None) -> None:
    """A value that leaves the model free does not count as a choice."""
    assert _read(tools=[FUNCTION], **choices).choice == choice


def test_a_first_system_message_costs_less_where_there_are_functions() -> None:
    """It shares the frame of the functions. Other tools have no frame, and a user message does not share it."""
    costs: dict[tuple[str, bytes], int] = {}
    for role in ("system", "user"):
        for tools in (b"[]", b"[%s]" % orjson.dumps(CUSTOM), b"[%s]" % orjson.dumps(FUNCTION)):
            body = b'{"messages":[{"role":"%s","content":"x"}],"tools":%s}' % (role.encode(), tools)
            costs[role, tools] = CHAT.decode(CHAT.read(body), Counting(len, make_known(), GPT)).tokens
    saved = [costs["user", tools] - costs["system", tools] for role, tools in costs if role == "user"]
    assert saved == [0, 0, -SYSTEM_TOKENS - len("\n")]
