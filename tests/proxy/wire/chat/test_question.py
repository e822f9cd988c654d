"""The request for a summary in chat completions, and the response to it."""

from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Completion, Counting, Question, UndecodableError

QUESTION = Question("m", 400, 0.2)
MESSAGES = b'[{"role": "system","content":"Be brief."} , {"role":"user","content":"hi"}]'


def _ask_behind(
    question: Question = QUESTION, *, is_apart: bool = False, **members: object
) -> dict[str, object] | None:
    body = b'{"messages":' + MESSAGES + b"," + orjson.dumps({"model": "client", **members})[1:]
    request = CHAT.read(body)
    prefix = CHAT.decode(request, Counting(count_by_heuristic, make_known()))
    asked = CHAT.ask_behind(request, prefix, question, "WRITE", is_apart=is_apart)
    return None if asked is None else orjson.loads(asked)


def test_a_question_of_its_own_says_how_it_is_to_be_answered() -> None:
    """Model, prompt, completion; nothing is streamed."""
    asked = orjson.loads(CHAT.ask(QUESTION, "WRITE"))
    assert asked == {
        "model": "m",
        "messages": [{"role": "user", "content": "WRITE"}],
        "temperature": 0.2,
        "max_tokens": 400,
        "stream": False,
    }


def test_a_model_that_thinks_has_another_name_for_its_limit() -> None:
    """It may also refuse a temperature."""
    asked = orjson.loads(CHAT.ask(Question("m", 400, None, is_reasoning=True), "WRITE"))
    assert asked["max_completion_tokens"] == 400
    assert not asked.keys() & {"max_tokens", "temperature"}


def test_a_question_behind_a_conversation_begins_with_its_bytes() -> None:
    """The client's model and tools are copied; its limits are not."""
    asked = _ask_behind(tools=[], max_tokens=7, top_p=0.5, stream=True)
    assert asked is not None
    assert asked["messages"] == [*orjson.loads(MESSAGES), {"role": "user", "content": "WRITE"}]
    assert (asked["model"], asked["tools"], asked["max_tokens"], asked["stream"]) == ("client", [], 400, False)
    assert "top_p" not in asked


def test_a_request_that_thinks_gets_room_for_it() -> None:
    """In addition to the completion. Anthropic accepts no temperature with it."""
    asked = _ask_behind(thinking={"type": "enabled", "budget_tokens": 1000})
    assert asked is not None
    assert asked["max_tokens"] == 1400
    assert "temperature" not in asked


def test_an_answer_of_a_prescribed_form_is_no_note() -> None:
    """Such a conversation is summarised by a separate request."""
    assert _ask_behind(response_format={"type": "json_object"}) is None


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"message": {"content": "a"}, "finish_reason": "stop"}, Completion("a", Usage(9))),
        ({"message": {"content": [{"text": "a"}, {}, {"text": "b"}]}}, Completion("ab", Usage(9))),
        ({"message": {"content": None, "tool_calls": [{}]}}, Completion("", Usage(9), calls_tool=True)),
        ({"message": {"content": "a"}, "finish_reason": "length"}, Completion("a", Usage(9), was_cut=True)),
        ({"finish_reason": "content_filter"}, Completion("", Usage(9), was_filtered=True)),
    ],
)
def test_a_completion_says_what_was_written_and_why_it_ended(choice: object, expected: Completion) -> None:
    """Content as a text or in parts."""
    body = orjson.dumps({"choices": [choice], "usage": {"prompt_tokens": 9}})
    assert CHAT.read_completion(body) == expected


def test_a_streamed_answer_is_the_same_answer() -> None:
    """Also without its content type, and with comments before it. Only the first choice counts."""
    chunks = (
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}}]},
        {"choices": [{"index": 1, "delta": {"content": "other"}}]},
        {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "length"}]},
        {"choices": [], "usage": {"prompt_tokens": 9}},
    )
    events = b"".join(b"data: %b\n\n" % orjson.dumps(chunk) for chunk in chunks)
    assert CHAT.read_completion(b": hello\n\n" + events + b"data: [DONE]\n\n") == Completion(
        "ab", Usage(9), was_cut=True
    )
    calls = b'data: {"choices":[{"delta":{"tool_calls":[{}]}}]}\n\n'
    assert CHAT.read_completion(calls).calls_tool


@pytest.mark.parametrize(
    "body", [b"data: [DONE]\n\n", b'data: {"error":{"message":"no"}}\n\n', b"data: {}\n\n", b": x\n\n"]
)
def test_a_stream_without_an_answer_is_no_completion(body: bytes) -> None:
    with pytest.raises(UndecodableError):
        CHAT.read_completion(body)


def test_what_is_refused_is_not_sent() -> None:
    """The limit has a second name; a streamed question asks for its usage."""
    refused = frozenset({"temperature", "max_tokens", "stream"})
    asked = orjson.loads(CHAT.ask(Question("m", 400, 0.2, refused=refused), "WRITE"))
    assert asked.keys() == {"model", "messages", "max_completion_tokens", "stream", "stream_options"}
    assert asked["stream"] is True
    more = refused | {"max_completion_tokens", "stream=true"}
    assert orjson.loads(CHAT.ask(Question("m", 400, 0.2, refused=more), "WRITE")).keys() == {"model", "messages"}


def test_a_question_of_its_own_is_of_the_clients_session() -> None:
    """It has the client's system messages, account and session, but neither its tools nor how it wants its answer."""
    own = {"user": "u", "store": False, "metadata": {"a": 1}, "prompt_cache_key": "k", "service_tier": "flex"}
    asked = _ask_behind(
        Question("other", 400), is_apart=True, **own, tools=[], tool_choice="auto", parallel_tool_calls=True,
        response_format={"type": "json_object"}, temperature=1, max_tokens=7, stream=True, n=2, stop="x",
    )  # fmt: skip
    assert asked is not None
    assert {name: asked.pop(name) for name in own} == own
    assert asked.pop("messages") == [*orjson.loads(MESSAGES), {"role": "user", "content": "WRITE"}]
    assert asked == {"model": "other", "max_tokens": 400, "stream": False}


@given(st.binary(max_size=40) | st.builds(lambda odd: dump({"choices": odd, "usage": odd, "error": odd}), ODD))
def test_whatever_comes_is_an_answer_or_undecodable(body: bytes) -> None:
    """Nothing else is raised."""
    assert CHAT.find_refused(QUESTION, body) is None
    with suppress(UndecodableError):
        assert isinstance(CHAT.read_completion(body), Completion)
