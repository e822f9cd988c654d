"""The checker of Messages: it names what is wrong. Each use of it shows that it accepts what is right."""

from typing import Any

import orjson
import pytest
from support.dialects.messages_checker import check_changes, check_request
from support.dialects.messages_validity import check_body
from support.dialects.seals import seal

Wire = dict[str, Any]

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
PLAN = {"type": "thinking", "thinking": "hm", "signature": seal("hm")}
USE = {"type": "tool_use", "id": "a", "name": "run", "input": {"n": 1.50}}
OUT = {"type": "tool_result", "tool_use_id": "a", "content": "out", "is_error": False}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
TASK = {"role": "user", "content": "task"}
ASKED = {"role": "assistant", "content": [PLAN, {"type": "text", "text": "I run it."}, USE]}
GIVEN = {"role": "user", "content": [OUT, {"type": "text", "text": "and then?"}]}
SAID = {"role": "assistant", "content": [{"type": "text", "text": "said"}]}
LAST = {"role": "user", "content": [{"type": "text", "text": "last", **MARK}]}
TALK = [TASK, ASKED, GIVEN, SAID, LAST]
MEMO = {"role": "user", "content": [{"type": "text", "text": "task"}, {"type": "text", "text": "summary"}]}
BRIDGE = {"role": "assistant", "content": "understood"}
TOOLS = [{"name": "run", "input_schema": {"type": "object"}}]


def body(messages: object, **members: object) -> Wire:
    return {"model": "m", "max_tokens": 2000, "system": "s", "messages": messages, "tools": TOOLS, **members}


def change(messages: list[Wire], old: list[Wire] = TALK) -> list[str]:
    return check_changes(orjson.dumps(body(old)), orjson.dumps(body(messages)))


def user(*blocks: Wire) -> Wire:
    return {"role": "user", "content": list(blocks)}


def model(*blocks: Wire) -> Wire:
    return {"role": "assistant", "content": list(blocks)}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (body([]), "messages: at least one"),
        (body([SAID, LAST]), "messages: the first message must be the user's"),
        (body([{**TASK, "content": ""}]), "messages.0: must have non-empty content"),
        (body([user({"type": "text", "text": " \n"})]), "messages.0.content.0: text content blocks"),
        (body([TASK, {"role": "assistant", "content": "so "}]), "final assistant content cannot end"),
        (body([TASK, model(OUT)]), "messages.1.content.0: tool_result in a message of the assistant"),
        (body([TASK, model(USE), LAST]), "tool_use 'a' has no tool_result in the next message"),
        (body([TASK, model(USE), user({"type": "text", "text": "x"}, OUT)]), "a tool_result after another block"),
        (body([TASK, model(USE), LAST, SAID, user(OUT)]), "unexpected tool_result of 'a'"),
        (body([TASK, model(USE), user(OUT, OUT)]), "unexpected tool_result of 'a', or a second one"),
        (body([TASK, model(FOUND), LAST]), "web_search_tool_result of 's' has no call before it"),
        (body([TASK, model(USE), user(OUT), model(USE), user(OUT)]), "tool_use ids must be unique: 'a'"),
        (body([TASK, model({**USE, "id": "a:b"}), user({**OUT, "tool_use_id": "a:b"})]), "tool_use.id: 'a:b'"),
        (body([TASK, model({"type": "text", "text": "x"}, PLAN), LAST]), "messages.1: the final block"),
        (body([TASK, model({"type": "text", "text": "x"}, PLAN, USE), user(OUT)]), "messages.1: thinking does not"),
        (body([TASK, model({"type": "thinking", "thinking": ""}, USE), user(OUT)]), "messages.1: thinking without"),
        (
            body(
                [*TALK[:3], model({**USE, "id": "b"}), user({**OUT, "tool_use_id": "b"})], thinking={"type": "enabled"}
            ),
            "the last assistant message must start with a thinking block",
        ),
        (body([TASK, model({**PLAN, **MARK}, USE), user(OUT)]), "cache_control on thinking"),
        (body([user(*[{"type": "text", "text": "x", **MARK}] * 5)]), "5 blocks with cache_control; at most 4"),
        (body([LAST, SAID, user({"type": "text", "text": "x", **HOUR})]), "a cache_control of 1h after one of 5m"),
        ({"model": "m", "messages": [TASK]}, "max_tokens: field required"),
        (body([TASK], thinking={"type": "enabled", "budget_tokens": 2000}), "max_tokens must be greater than"),
        (body([TASK], thinking={"type": "enabled"}, tool_choice={"type": "any"}), "thinking may not be enabled when"),
        (body([TASK, model(USE), user(OUT)], tools=[]), "requests which include tool_use"),
        (body([TASK], tools=[], tool_choice={"type": "auto"}), "tool_choice may only be specified"),
    ],
)
def test_what_the_provider_refuses_is_named(wrong: Wire, problem: str) -> None:
    assert any(found.startswith(problem) for found in check_body(wrong)), check_body(wrong)


def test_a_missing_result_may_be_added() -> None:
    """It has only what it needs, and is in the user's message."""
    added = {"type": "tool_result", "tool_use_id": "a", "content": "aborted"}
    assert change([TASK, ASKED, user(added, LAST["content"][0])], [TASK, ASKED, LAST]) == []
    assert change([TASK, ASKED, user({**added, "is_error": True}, LAST["content"][0])], [TASK, ASKED, LAST]) == []
    wrong = change([TASK, ASKED, user({**added, "x": True}, LAST["content"][0])], [TASK, ASKED, LAST])
    assert wrong == ["members of a user block are not the client's: type, tool_use_id, content, x"]


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ([TASK, model(*ASKED["content"][1:]), GIVEN, SAID, LAST], "assistant message 0"),
        ([TASK, model(*ASKED["content"][:2], {**USE, "input": {"n": 1.6}}), GIVEN, SAID, LAST], "assistant message 0"),
        ([MEMO, SAID, LAST, SAID, LAST], "assistant message 1"),
        ([TASK, ASKED, user({**OUT, "tool_use_id": "b"}, GIVEN["content"][1]), SAID, LAST], "members of a user block"),
        ([TASK, ASKED, user({**OUT, "content": ""}, GIVEN["content"][1]), SAID, LAST], "message 2: a tool message"),
        ([{**MEMO, "name": "x"}, SAID, LAST], "members of a user message: role, name"),
        ([MEMO, SAID, user({"type": "text", "text": "last"})], "the cache marker of the messages was lost"),
        ([MEMO, SAID, user({"type": "text", "text": "last", **HOUR})], "a cache marker of our own"),
        ([MEMO, {"role": "system", "content": "x"}, SAID, LAST], "system messages are not the client's"),
        ([SAID, LAST], "the task statement is not complete"),
        ([MEMO, SAID, user({"type": "text", "text": "la", **MARK})], "the last user message is missing"),
        ([MEMO, BRIDGE, SAID, LAST], "an assistant message that is not the client's is between"),
    ],
)
def test_what_should_have_stayed_is_named(sent: list[Wire], problem: str) -> None:
    assert any(found.startswith(problem) for found in change(sent)), change(sent)


def test_a_bridge_cannot_be_the_last_assistant_message_while_thinking_is_enabled() -> None:
    """The provider wants thinking there, and only it can sign one. Without thinking, the bridge is no problem."""
    raws = [
        orjson.dumps(body(one, thinking={"type": "enabled"}))
        for one in (TALK, [MEMO, BRIDGE, LAST], [MEMO, SAID, LAST])
    ]
    assert check_changes(raws[0], raws[1]) == [
        "thinking is enabled, and the last assistant message is not the client's"
    ]
    assert check_changes(raws[0], raws[2]) == []


def test_other_members_keep_their_bytes_and_order() -> None:
    sent = orjson.dumps(body(TALK))
    assert check_request(sent, sent) == []
    assert check_changes(sent, sent.replace(b'"system":"s"', b'"system":"t"')) == ["system was changed"]
    assert check_changes(sent, sent.replace(b'"name":"run","input_schema"', b'"name":"go","input_schema"')) == [
        "tools was changed"
    ]
