"""Tools that a search has loaded."""

import orjson
import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.message import decode_message
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.content.server_tools import find_referenced
from trimtab.proxy.wire.messages.message import decode_element
from trimtab.proxy.wire.responses.message import decode_unit
from trimtab.rules.tokens.families import GENERIC

COUNTING = Counting(count_by_heuristic, make_known())
REFERENCES = [{"type": "tool_reference", "tool_name": name} for name in ("dock", "lift", "dock")]


@pytest.mark.parametrize(
    ("role", "block"),
    [
        ("user", {"type": "tool_result", "tool_use_id": "s", "content": REFERENCES}),
        (
            "assistant",
            {
                "type": "tool_search_tool_result",
                "tool_use_id": "s",
                "content": {"type": "tool_search_tool_search_result", "tool_references": REFERENCES},
            },
        ),
    ],
)
def test_references_of_messages_load_tools(role: str, block: object) -> None:
    """In a result of the client's search, and in one of the server's."""
    (message,) = decode_element(COUNTING, orjson.dumps({"role": role, "content": [block]}))
    assert message.loads == ("dock", "lift")


def test_references_in_a_chat_load_tools() -> None:
    """Gateways pass them as content parts."""
    raw = orjson.dumps({"role": "tool", "tool_call_id": "s", "content": REFERENCES})
    assert decode_message(raw, count_by_heuristic, GENERIC.costs).loads == ("dock", "lift")


def test_declarations_of_responses_load_tools() -> None:
    """Those in a namespace, too."""
    inner = {"type": "function", "name": "lift", "parameters": {}}
    tools = [{"type": "function", "name": "dock"}, {"type": "namespace", "name": "mcp__port", "tools": [inner]}, 7]
    items = [
        {"type": "tool_search_call", "call_id": "s"},
        {"type": "tool_search_output", "call_id": "s", "tools": tools},
    ]
    (message,) = decode_unit(COUNTING, b",".join(map(orjson.dumps, items)))
    assert message.loads == ("dock", "mcp__port", "lift")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"content":"tool_reference"}',
        orjson.dumps({"type": "tool_use", "input": REFERENCES}),
        b'{"type":"tool_reference","tool_name":7}',
        b"[" * 2000 + b'{"type":"tool_reference"}' + b"]" * 2000,
        b'{"type":"tool_reference"',
    ],
)
def test_what_only_looks_like_it_loads_nothing(raw: bytes) -> None:
    """Arguments of a call, odd values, and what cannot be decoded."""
    assert find_referenced(raw) == ()
