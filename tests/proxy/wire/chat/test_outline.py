"""A chat request at a glance."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import dump, odd_objects

from proxy.wire.chat.message import UndecodableError
from proxy.wire.chat.outline import FRAME_TOKENS, read_outline
from proxy.wire.chat.request import ChatCache, ChatCodec, read_request
from rules.conversation import CountTokens
from rules.pipeline.quick_check import Outline

CALL = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"a": 1}'}}
TALK = [
    {"role": "system", "content": "You are careful."},
    {"role": "user", "content": [{"type": "text", "text": "Go."}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "done " * 100},
    {"role": "tool", "tool_call_id": "c1", "content": "done"},
]
TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}]


def outline(messages: object, **members: object) -> Outline | None:
    return read_outline(read_request(orjson.dumps({"model": "m", "messages": messages, **members})), len)


def test_roles_calls_and_answers_are_read() -> None:
    """All that pairing needs, and no text."""
    found = outline(TALK)

    assert found is not None
    assert [message.role for message in found.messages] == ["system", "user", "assistant", "tool", "tool"]
    assert [call.id for call in found.messages[2].tool_calls] == ["c1"]
    assert [message.answers for message in found.messages] == [None, None, None, "c1", "c1"]
    assert not any(message.texts for message in found.messages)


def test_bounds_are_of_the_whole_body_and_of_the_largest_result() -> None:
    """In bytes, where nothing tighter is known."""
    body = orjson.dumps({"model": "m", "messages": TALK})
    found = outline(TALK)

    assert found is not None
    assert found.tokens == len(body) + FRAME_TOKENS
    assert found.result_bytes == len(orjson.dumps(TALK[3]))


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}],
        [{"type": "text", "text": "a"}, {"type": "file", "file": {"file_id": "x"}}],
        [{"type": "text", "text": 5}],
        {"text": "an object"},
        5,
    ],
)
def test_what_bytes_do_not_bound_has_no_outline(content: object) -> None:
    """An image costs what its few bytes do not tell; odd content is for others to judge."""
    assert outline([*TALK, {"role": "user", "content": content}]) is None


def test_tools_that_refer_have_no_outline() -> None:
    """What a reference points to is read wherever it is pointed to."""
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "run", "parameters": schema}}]

    assert outline(TALK, tools=TOOLS) is not None
    assert outline(TALK, tools=tools) is None


ODD_MESSAGES = odd_objects("role", "content", "tool_calls", "tool_call_id", "name")


@given(st.lists(st.sampled_from(TALK) | ODD_MESSAGES, max_size=4))
def test_odd_messages_raise_nothing(messages: list[object]) -> None:
    """Whatever stands in the messages: all of them are in the outline, or there is none."""
    body = b'{"messages":[' + b",".join(map(dump, messages)) + b"]}"
    found = read_outline(read_request(body), len)
    assert found is None or len(found.messages) == len(messages)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool", "system"]), "content": st.text(max_size=200)},
            optional={"tool_calls": st.lists(st.just(CALL), max_size=3), "name": st.text(max_size=9)},
        ),
        max_size=6,
    ),
    st.booleans(),
)
def test_bytes_bound_the_count(count: CountTokens, messages: list[object], with_tools: bool) -> None:  # noqa: FBT001
    """No request of texts and calls has more tokens than its outline says."""
    body = orjson.dumps({"model": "m", "messages": messages, **({"tools": TOOLS} if with_tools else {})})
    found = read_outline(read_request(body), len)
    try:
        counted = ChatCodec(count, cache=ChatCache()).decode(read_request(body))
    except UndecodableError:
        return

    assert found is not None
    assert counted.tokens <= found.tokens
