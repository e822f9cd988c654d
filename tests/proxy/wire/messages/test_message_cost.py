"""What costs prompt tokens is counted, in the same way as in the other dialects."""

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump, odd_objects

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.content import guess_data
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.messages.message import SEALED_CHARS_PER_TOKEN, count_block, count_said, read_tools_and_format
from trimtab.proxy.wire.tools import read_fixed
from trimtab.rules.conversation import Message, Role
from trimtab.rules.tokens.families import GENERIC, find_family
from trimtab.rules.tokens.messages import NO_CHOICE


def count(text: str) -> int:
    """One token per character."""
    return len(text)


TEXT = {"type": "text", "text": "abc"}
CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "a"}'}}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "description": "where"}}, "required": ["path"]}
CHAT_MEMBERS = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [TEXT, TEXT]},
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL, {**CALL, "id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        {"role": "tool", "tool_call_id": "c2", "content": "b.txt"},
        {"role": "user", "content": "Go on."},
    ],
    "tools": [{"type": "function", "function": {"name": "ls", "description": "lists", "parameters": SCHEMA}}],
}
USE = {"type": "tool_use", "id": "c1", "name": "ls", "input": {"path": "a"}}
MEMBERS = {
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": [TEXT, TEXT]},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, USE, {**USE, "id": "c2"}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "a.txt"},
                {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "b.txt"}]},
                {"type": "text", "text": "Go on."},
            ],
        },
    ],
    "tools": [{"name": "ls", "description": "lists", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}],
}
FORM = {"type": "json_schema", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-4o", "o3", "unknown"])
@pytest.mark.parametrize(
    ("added", "to_chat"),
    [
        ({}, {}),
        ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
        ({"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
        (
            {"tool_choice": {"type": "tool", "name": "ls"}},
            {"tool_choice": {"type": "function", "function": {"name": "ls"}}},
        ),
        ({"output_config": {"format": FORM}}, {"response_format": {"type": "json_schema", "json_schema": FORM}}),
        ({"output_format": FORM}, {"response_format": {"type": "json_schema", "json_schema": FORM}}),
    ],
)
def test_a_conversation_costs_what_it_costs_as_a_chat(model: str, added: dict, to_chat: dict) -> None:
    """Messages, calls, results, tools, the choice of a tool and the output format."""
    costs = find_family(model).costs
    counted = [
        codec.decode(codec.read(orjson.dumps({**members, **more})), Counting(count, make_known(), costs))
        for codec, members, more in ((MESSAGES, MEMBERS, added), (CHAT, CHAT_MEMBERS, to_chat))
    ]
    assert [m.tokens for m in counted[0].messages] == [m.tokens for m in counted[1].messages]
    assert counted[0].fixed_tokens == counted[1].fixed_tokens


def _think(**block: str) -> int:
    raws = {name: msgspec.Raw(orjson.dumps(value)) for name, value in block.items()}
    bare = count_said(Message(Role.ASSISTANT), (), count, GENERIC.costs)
    return count_said(Message(Role.ASSISTANT), (raws,), count, GENERIC.costs) - bare


def test_thinking_counts_what_is_shown_or_what_is_hidden() -> None:
    """The larger of the two: shown text may be only a summary, or empty."""
    assert _think(thinking="x" * 100, signature="s" * 60) == 100
    assert _think(thinking="", signature="s" * 6000) == 6000 // SEALED_CHARS_PER_TOKEN
    assert _think(data="s" * 600) == 600 // SEALED_CHARS_PER_TOKEN


@pytest.mark.parametrize(
    ("source", "tokens"),
    [
        ({"type": "text", "media_type": "text/plain", "data": "x" * 90}, 90),
        ({"type": "content", "content": [{"type": "text", "text": "x" * 20}, {"type": "text", "text": "y"}]}, 21),
        ({"type": "content", "content": "x" * 20}, 20),
        ({"type": "base64", "media_type": "application/pdf", "data": "A" * 4000}, guess_data("A" * 4000)),
        ({"type": "url", "url": "https://x/y.pdf"}, guess_data(None)),
        ({"type": "file", "file_id": "file_1"}, guess_data(None)),
    ],
)
def test_documents_count_their_text_or_a_guess(source: object, tokens: int) -> None:
    """With title and context."""
    block = {"type": "document", "source": source, "title": "abc", "context": "de"}
    assert count_block(orjson.dumps(block), count, GENERIC.costs).tokens == tokens + 5


def test_encrypted_texts_count_by_their_length() -> None:
    """Results of web search hold the pages that the model has read."""
    page = {"type": "web_search_result", "url": "https://x", "encrypted_content": "A" * 6000}
    block = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [page]}
    without = {**block, "content": [{"type": "web_search_result", "url": "https://x"}]}
    tokens = count(orjson.dumps(without).decode())
    assert count_block(orjson.dumps(block), count, GENERIC.costs).tokens == tokens + 6000 // SEALED_CHARS_PER_TOKEN


def test_tools_of_the_server_count_by_their_json() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    custom = {"type": "custom", "name": "ls", "input_schema": SCHEMA}
    around = read_fixed((orjson.dumps([search, custom]), b'{"type":"none"}', b"", b""), read_tools_and_format)
    assert around.others == [orjson.dumps(search).decode()]
    assert around.functions == [{"name": "ls", "parameters": SCHEMA}]
    assert around.choice == NO_CHOICE


@given(st.lists(odd_objects("type", "name", "input_schema", "format", "schema"), min_size=4, max_size=4), ODD)
def test_odd_members_are_counted_somehow(members: list, odd: object) -> None:
    """Nothing is raised, whatever their types are."""
    raws = [dump(member) for member in members]
    assert read_fixed(raws, read_tools_and_format) is not None
    assert count_block(dump({"type": "document", "source": odd, "title": odd}), count, GENERIC.costs).tokens >= 0
    assert count_block(dump(odd), count, GENERIC.costs).tokens >= 0


def test_very_many_tools_are_counted_undecoded() -> None:
    """And so is a nesting that no decoder follows."""
    for tools in (b"[" + b",".join([b"1"] * 200_000) + b"]", b"[" * 5000 + b"]" * 5000):
        assert read_fixed((tools, b"", b"", b""), read_tools_and_format).others == (tools.decode(),)
    assert count_block(b'{"type":"x","y":%b1%b}' % (b"[" * 900, b"]" * 900), count, GENERIC.costs).tokens > 900
