"""The request for a summary in chat completions, and the response to it."""

from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump

from proxy.compaction.caches import make_known
from proxy.compaction.tokenizers.exact import count_by_heuristic
from proxy.wire.answers.usage import Usage
from proxy.wire.chat.codec import CHAT
from proxy.wire.codec import Completion, Counting, Question, UndecodableError

QUESTION = Question("m", 400, 0.2)
MESSAGES = b'[{"role": "system","content":"Be brief."} , {"role":"user","content":"hi"}]'


def _ask_behind(question: Question = QUESTION, **members: object) -> dict[str, object] | None:
    body = b'{"messages":' + MESSAGES + b"," + orjson.dumps({"model": "client", **members})[1:]
    request = CHAT.read(body)
    prefix = CHAT.decode(request, Counting(count_by_heuristic, make_known()))
    asked = CHAT.ask_behind(request, prefix, question, "WRITE")
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


@pytest.mark.parametrize(
    ("param", "expected"),
    [("temperature", "temperature"), ("max_tokens", "completion_limit"), ("messages", None), (None, None)],
)
def test_a_refused_parameter_is_told(param: str | None, expected: str | None) -> None:
    """Only parameters that a question has."""
    assert CHAT.read_refused_parameter(orjson.dumps({"error": {"message": "no", "param": param}})) == expected


@given(st.binary(max_size=40) | st.builds(lambda odd: dump({"choices": odd, "usage": odd, "error": odd}), ODD))
def test_whatever_comes_is_an_answer_or_undecodable(body: bytes) -> None:
    """Nothing else is raised."""
    assert CHAT.read_refused_parameter(body) in {None, "temperature", "completion_limit"}
    with suppress(UndecodableError):
        assert isinstance(CHAT.read_completion(body), Completion)
