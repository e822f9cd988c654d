"""What costs prompt tokens is counted, in the same way as in the other dialects."""

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump, odd_objects

from trimtab.proxy.wire.content import guess_data
from trimtab.proxy.wire.messages.message import SEALED_CHARS_PER_TOKEN, count_block, count_said, read_tools_and_format
from trimtab.proxy.wire.tools import read_fixed
from trimtab.rules.conversation import Message, Role
from trimtab.rules.tokens.families import GENERIC
from trimtab.rules.tokens.messages import NO_CHOICE


def count(text: str) -> int:
    """One token per character."""
    return len(text)


SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "description": "where"}}, "required": ["path"]}


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
        ({"type": "base64", "media_type": "application/pdf", "data": "A" * 4000}, guess_data("A" * 4000)),
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
