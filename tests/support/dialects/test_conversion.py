"""Recorded chats become valid bodies of the other dialects, with all their texts. What they cannot say is refused."""

from typing import Any

import orjson
import pytest
from support.checker import texts_of
from support.dialects import messages_checker, responses_checker
from support.dialects.oddities import NotConvertibleError
from support.dialects.seals import is_seal, seal
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses
from support.sessions import recorded_files, some_sessions

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


@pytest.mark.recorded
@pytest.mark.parametrize("file", recorded_files("conversations"), ids=lambda file: file.stem)
def test_recorded_sessions_become_valid_bodies_with_all_their_texts(file) -> None:
    """With and without reasoning. A session that begins in the middle of a turn is refused."""
    for session in some_sessions(file):
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
