"""What is counted outside the transcript."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from support.odd_json import ODD, dump

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.responses.codec import RESPONSES, read_tools_and_format
from trimtab.proxy.wire.tools import read_fixed

FUNCTION = {
    "name": "ls",
    "description": "List files.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
SCHEMA = {"name": "answer", "schema": {"type": "object", "properties": {"x": {"type": "integer"}}}}


def _count_fixed(**members: object) -> int:
    counting = Counting(count_by_heuristic, make_known())
    return RESPONSES.decode(RESPONSES.read(orjson.dumps({"input": "a", **members})), counting).fixed_tokens


def _count_in_chat(**members: object) -> int:
    counting = Counting(count_by_heuristic, make_known())
    body = orjson.dumps({"messages": [{"role": "user", "content": "a"}], **members})
    return CHAT.decode(CHAT.read(body), counting).fixed_tokens


@pytest.mark.parametrize(
    ("members", "in_chat"),
    [
        ({}, {}),
        (
            {"tools": [{"type": "function", **FUNCTION}]},
            {"tools": [{"type": "function", "function": FUNCTION}]},
        ),
        (
            {"tools": [{"type": "function", **FUNCTION}], "tool_choice": {"type": "function", "name": "ls"}},
            {
                "tools": [{"type": "function", "function": FUNCTION}],
                "tool_choice": {"type": "function", "function": {"name": "ls"}},
            },
        ),
        (
            {"tools": [{"type": "function", **FUNCTION}], "tool_choice": "none"},
            {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "none"},
        ),
        (
            {"text": {"format": {"type": "json_schema", **SCHEMA}}},
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        ),
        ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, {"response_format": {"type": "text"}}),
    ],
)
def test_the_same_request_costs_the_same_in_chat(members: dict[str, Any], in_chat: dict[str, Any]) -> None:
    assert _count_fixed(**members) == _count_in_chat(**in_chat)


def test_tools_count_as_the_model_reads_them() -> None:
    """Functions of a namespace are functions; of a tool to search for, only name and description are read."""
    plain = _count_fixed(tools=[{"type": "function", **FUNCTION}])
    space = {"type": "namespace", "name": "files", "description": "Files.", "tools": [{"type": "function", **FUNCTION}]}
    assert _count_fixed(tools=[space]) > plain
    longer = {"type": "function", **FUNCTION, "description": "List files. " * 20}
    grown = _count_fixed(tools=[{**space, "tools": [longer]}]) - _count_fixed(tools=[space])
    assert grown == _count_fixed(tools=[longer]) - plain  # each is counted once
    long = FUNCTION | {"parameters": {"type": "object", "properties": {f"p{n}": {} for n in range(99)}}}
    deferred = {"type": "function", "defer_loading": True, **long}
    assert _count_fixed(tools=[deferred]) < plain + 100 < _count_fixed(tools=[{"type": "function", **long}])
    assert _count_fixed(tools=[{"type": "web_search"}]) > _count_fixed()
    nested = [{"type": "function", "function": FUNCTION}]
    assert _count_fixed(tools=nested) == plain  # some clients nest it as chat completions do


@pytest.mark.parametrize(
    ("members", "is_all"),
    [
        ({"store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "low"}}, True),
        ({"text": {"verbosity": "low"}, "prompt_cache_key": "k", "client_metadata": {}, "stream": True}, True),
        ({"previous_response_id": None, "prompt": None, "truncation": "disabled"}, True),
        ({"previous_response_id": "r"}, False),
        ({"prompt": {"id": "p"}}, False),
        ({"context_management": [{"type": "compaction"}]}, False),
        ({"truncation": "auto"}, False),
        ({"new": 1}, False),
    ],
)
def test_a_request_that_is_counted_whole_is_known(members: dict[str, Any], *, is_all: bool) -> None:
    """Only such requests help to calibrate."""
    assert RESPONSES.counts_all(RESPONSES.read(orjson.dumps({"input": "a", "model": "m", **members}))) is is_all
    broken = RESPONSES.read(b'{"input":[],"model":"m","user":"\\ud83d"}')
    assert not RESPONSES.counts_all(broken)


def test_the_items_are_not_read_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)
    request = RESPONSES.read(b'{"input":[{"role":"user"}],"x":1}')
    assert request.kept_body is not None
    assert not RESPONSES.counts_all(request)


@given(ODD, ODD, ODD)
def test_odd_members_are_counted_by_their_json(tools: Any, choice: Any, text: Any) -> None:
    """Nothing is raised."""
    read_fixed((dump(tools), dump(choice), dump(text)), read_tools_and_format)


def test_what_cannot_be_decoded_is_counted_as_text() -> None:
    assert read_fixed((b"[" * 5000, b"", b""), read_tools_and_format).others == ("[" * 5000,)
