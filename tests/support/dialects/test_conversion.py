"""Recorded chats become valid bodies of the other dialects, with all their content."""

from typing import Any

import orjson
import pytest
from support.checker import texts_of
from support.dialects import messages_checker, responses_checker
from support.dialects.messages_validity import check_body
from support.dialects.oddities import NotConvertibleError
from support.dialects.seals import is_seal, seal
from support.dialects.to_messages import FIRST, to_messages
from support.dialects.to_responses import to_responses
from support.sessions import make_session, read_rows, recorded_files

Wire = dict[str, Any]

LONGEST = 400
"""The messages of a session that are converted here; longer ones only repeat themselves."""


def call(key: str, arguments: str = '{"n":1}') -> Wire:
    return {"id": key, "type": "function", "function": {"name": "run", "arguments": arguments}}


def result(key: str, text: str = "out") -> Wire:
    return {"role": "tool", "tool_call_id": key, "content": text}


def asks(*calls: Wire, text: str | None = None) -> Wire:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def talk(*messages: Wire) -> Wire:
    return {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "task"}, *messages]}


def test_a_response_becomes_a_message_and_its_calls() -> None:
    """In Responses each call and each output is an item, and the system prompt is `instructions`."""
    body = to_responses(talk(asks(call("a"), call("b"), text="now"), result("a"), result("b")))
    kinds = [item["type"] for item in body["input"]]
    assert kinds == ["message", "message", "function_call", "function_call", *["function_call_output"] * 2]
    assert body["instructions"] == "s"
    assert body["input"][2]["arguments"] == '{"n":1}'


def test_the_results_of_a_turn_and_the_users_text_are_one_message() -> None:
    """In Messages the text of the user is behind the results."""
    body = to_messages(talk(asks(call("a"), call("b")), result("a"), result("b"), {"role": "user", "content": "go on"}))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "tool_result", "text"]
    assert body["messages"][1]["content"][0]["input"] == {"n": 1}
    assert body["system"] == [{"type": "text", "text": "s"}]
    assert [tool["name"] for tool in body["tools"]] == ["run"]


def test_repeated_and_odd_ids_become_unique_and_valid() -> None:
    """Each result still answers its own call."""
    session = talk(
        asks(call("x:1")), result("x:1", "one"), asks(call("x:1"), call("")), result("", "3"), result("x:1", "2")
    )
    items = to_responses(session)["input"]
    names = {item["call_id"]: index for index, item in enumerate(items) if item["type"] == "function_call"}
    answers = {item["output"]: names[item["call_id"]] for item in items if item["type"] == "function_call_output"}
    assert answers == {"one": 1, "2": 3, "3": 4}
    assert check_body(to_messages(session)) == []


def test_an_assistant_who_begins_is_asked_first() -> None:
    """Only in Messages, where the user must begin."""
    session = {"messages": [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "task"}]}
    assert to_messages(session)["messages"][0] == {"role": "user", "content": FIRST}
    assert len(to_responses(session)["input"]) == 2


def test_arguments_that_are_no_object_are_kept_in_one() -> None:
    blocks = to_messages(talk(asks(call("a", "[1"), call("b", "5")), result("a"), result("b")))["messages"][1][
        "content"
    ]
    assert [block["input"] for block in blocks] == [{"arguments": "[1"}, {"arguments": 5}]


def test_images_are_kept() -> None:
    """A data address becomes base64 in Messages."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    session = talk({"role": "user", "content": [image]})
    assert to_messages(session)["messages"][1]["content"][0]["source"]["data"] == "AAAA"
    assert to_responses(session)["input"][1]["content"][0]["image_url"].endswith("AAAA")


@pytest.mark.parametrize(
    "messages",
    [
        (result("a"),),
        (asks(call("a")), {"role": "user", "content": "never mind"}),
        (asks(call("a")),),
        (asks(call("a")), result("a"), result("a")),
        ({"role": "user", "content": [{"type": "video"}]},),
    ],
)
@pytest.mark.parametrize("convert", [to_responses, to_messages])
def test_what_no_other_dialect_can_say_is_refused(convert, messages) -> None:
    with pytest.raises(NotConvertibleError):
        convert(talk(*messages))


def test_a_change_of_a_seal_shows() -> None:
    text = seal("a", 1200)
    assert is_seal(text)
    assert len(text) == 1600
    assert not is_seal(text.replace(text[5], "A" if text[5] != "A" else "B", 1))
    assert not is_seal("no base64")
    assert not is_seal(None)


def test_a_longer_transcript_begins_with_the_items_of_a_shorter_one() -> None:
    """So a replay of its requests keeps the prefix, with reasoning or thinking, too."""
    messages = make_session(6)["messages"]
    for with_reasoning in (False, True):
        whole = to_responses({"messages": messages}, with_reasoning=with_reasoning)["input"]
        part = to_responses({"messages": messages[:8]}, with_reasoning=with_reasoning)["input"]
        assert whole[: len(part)] == part
        talks = [
            to_messages({"messages": one}, with_thinking=with_reasoning)["messages"] for one in (messages, messages[:8])
        ]
        assert talks[0][: len(talks[1])] == talks[1]


@pytest.mark.recorded
@pytest.mark.parametrize("file", recorded_files("conversations"), ids=lambda file: file.stem)
def test_recorded_sessions_become_valid_bodies_with_all_their_texts(file) -> None:
    """With and without reasoning. A session that begins in the middle of a turn is refused."""
    for session in read_rows(file):
        messages = session["messages"][:LONGEST]
        while messages[-1]["role"] != "user" and messages[-1].get("tool_calls"):
            messages.pop()
        short = {**session, "messages": messages}
        if session.get("orphans"):
            with pytest.raises(NotConvertibleError):
                to_messages(short)
            continue
        for sealed in (False, True):
            check_responses(short, to_responses(short, with_reasoning=sealed))
            check_messages(short, to_messages(short, with_thinking=sealed, with_markers=sealed))


def check_responses(session: Wire, body: Wire) -> None:
    raw = orjson.dumps(body)
    assert responses_checker.check_request(raw, raw) == []
    assert find_missing(session, raw) == []


def check_messages(session: Wire, body: Wire) -> None:
    raw = orjson.dumps(body)
    assert messages_checker.check_request(raw, raw) == []
    assert find_missing(session, raw) == []


def find_missing(session: Wire, raw: bytes) -> list[str]:
    """Texts of the session that are not in the body."""
    texts = [text for message in session["messages"] for text in texts_of(message) if text.strip()]
    return [text for text in texts if orjson.dumps(text) not in raw and orjson.dumps(text)[1:-1] not in raw]
