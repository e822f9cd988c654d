"""Completions in answers, whole or streamed, and answers and errors as events, in each dialect."""

from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump

from trimtab.proxy.wire.answering import Answers, Completion, ErrorText, Question
from trimtab.proxy.wire.answers.sse import MAX_EMPTY_EVENT_BYTES
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.dialects import CODECS
from trimtab.proxy.wire.transcript.body import UndecodableError

CHAT, RESPONSES, MESSAGES, _ = CODECS
each_dialect = pytest.mark.parametrize("codec", CODECS[:3], ids=lambda codec: codec.name)


def _choose(choice: Any) -> tuple[Answers, Any]:
    return CHAT, {"choices": [choice], "usage": {"prompt_tokens": 9}}


def _say(*blocks: Any, reason: str | None) -> tuple[Answers, Any]:
    usage = {"input_tokens": 9, "output_tokens": 2}
    return MESSAGES, {"type": "message", "content": blocks, "stop_reason": reason, "usage": usage}


def _put_out(*items: Any, reason: str | None = None) -> tuple[Answers, Any]:
    usage = {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 5}}
    return RESPONSES, {"output": items, "incomplete_details": {"reason": reason} if reason else None, "usage": usage}


CHATS, MESSAGED, RESPONDED = Usage(9), Usage(9, 2), Usage(9, 2, 5)
TEXT = {"type": "text", "text": "a"}
SAID = {"type": "message", "content": [{"type": "output_text", "text": "a"}, {"text": "b"}]}
REFUSED = {"type": "message", "content": [{"type": "refusal", "refusal": "c"}]}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (_choose({"message": {"content": "a"}, "finish_reason": "stop"}), Completion("a", CHATS)),
        (_choose({"message": {"content": [{"text": "a"}, {}, {"text": "b"}]}}), Completion("ab", CHATS)),
        (_choose({"message": {"content": None, "tool_calls": [{}]}}), Completion("", CHATS, calls_tool=True)),
        (_choose({"message": {"content": "a"}, "finish_reason": "length"}), Completion("a", CHATS, was_cut=True)),
        (_choose({"finish_reason": "content_filter"}), Completion("", CHATS, was_filtered=True)),
        (_say(TEXT, {**TEXT, "text": "b"}, reason="end_turn"), Completion("ab", MESSAGED)),
        (_say(TEXT, reason="max_tokens"), Completion("a", MESSAGED, was_cut=True)),
        (_say(reason="model_context_window_exceeded"), Completion("", MESSAGED, was_cut=True)),
        (_say(reason="refusal"), Completion("", MESSAGED, was_filtered=True)),
        (_say({"type": "tool_use"}, reason="tool_use"), Completion("", MESSAGED, calls_tool=True)),
        (
            _say({"type": "thinking", "thinking": "hm"}, {"type": "x", "text": "y"}, reason=None),
            Completion("", MESSAGED),
        ),
        (_put_out({"type": "reasoning", "summary": []}, SAID, REFUSED), Completion("ab", RESPONDED)),
        (_put_out({"type": "custom_tool_call"}), Completion("", RESPONDED, calls_tool=True)),
        (_put_out(reason="max_output_tokens"), Completion("", RESPONDED, was_cut=True)),
        (_put_out(reason="content_filter"), Completion("", RESPONDED, was_filtered=True)),
        ((CHAT, {"choices": [], "usage": [1]}), Completion("", Usage())),
        (
            (CHAT, {"choices": [{"message": {"content": "a", "reasoning": {}, "refusal": {}}}]}),
            Completion("a", Usage()),
        ),
        ((MESSAGES, {"content": [{**TEXT, "thinking": {}, "name": 5}]}), Completion("a", Usage())),
        ((RESPONSES, {"object": None, "output": [{**SAID, "id": 5}, {"type": 5}]}), Completion("ab", Usage())),
    ],
)
def test_a_completion_says_what_was_written_and_why_it_ended(told: tuple[Answers, Any], expected: Completion) -> None:
    """Content as a text or in parts. Thinking is no part of it. An odd usage is none; odd members lose nothing."""
    codec, answer = told
    assert codec.read_completion(orjson.dumps(answer)) == expected


def _stream(events: Iterable[Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events)


ITEM = {"type": "message", "content": [{"type": "output_text", "text": "ab"}]}


@pytest.mark.parametrize(("item", "output"), [(ITEM, []), ("odd", []), ("odd", [ITEM])])
def test_a_streamed_response_may_have_its_text_in_one_place_only(item: Any, output: list[Any]) -> None:
    """ChatGPT's backend sends the items only as they are done; others might send only their text."""
    events = [
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.output_text.delta", "delta": "a"},
        {"type": "response.output_text.delta", "delta": "b"},
        {"type": "response.output_text.delta", "delta": ["c"]},
        {"type": "response.reasoning_summary_text.delta", "delta": "d"},
        {"type": "response.output_item.done", "item": item},
        {
            "type": "response.completed",
            "response": {
                "output": output, "usage": {"input_tokens": 9}, "incomplete_details": {"reason": "max_output_tokens"},
            },
        },
    ]  # fmt: skip
    assert RESPONSES.read_completion(_stream(events)) == Completion("ab", Usage(9), was_cut=True)


def test_a_call_in_a_stream_is_no_note() -> None:
    assert CHAT.read_completion(_stream([{"choices": [{"delta": {"tool_calls": [{}]}}]}])).calls_tool


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


@pytest.mark.parametrize(
    ("codec", "answer"),
    [
        *((codec, body) for codec in (CHAT, MESSAGES, RESPONSES) for body in (b": x\n\n", b"data: {}\n\n", b"", b"{}")),
        (CHAT, b"data: [DONE]\n\n"),
        (CHAT, _stream([{"error": {"message": "no"}}])),
        (MESSAGES, _stream([{"type": "message_start", "message": {}}, OVERLOADED])),
        (MESSAGES, _stream([{"type": "ping"}])),
        (RESPONSES, _stream([{"type": "response.failed", "response": {"error": {}}}])),
        (RESPONSES, _stream([{"type": "error", "message": "no"}])),
        (RESPONSES, b'{"output":7}'),
    ],
)
def test_what_has_no_answer_is_no_completion(codec: Answers, answer: bytes) -> None:
    """Also a stream that fails after its beginning."""
    with pytest.raises(UndecodableError):
        codec.read_completion(answer)


@each_dialect
def test_an_error_in_another_form_becomes_one_of_the_dialect(codec: Any) -> None:
    """It names the status, and says what the upstream said, or that it said nothing."""
    for body, said in ((b"<html>busy", b"status 503: <html>busy"), (b" ", b"status 503: no reason given")):
        event = codec.write_event(503, body)
        assert said in event
        assert event.endswith(b"\n\n")
        assert b'"503"' in event


@each_dialect
def test_an_error_of_our_own_names_its_code(codec: Any) -> None:
    """As a body and as an event, which has the same error object."""
    error = ErrorText("no way", "overloaded", "trimtab_error", more={"x": [1]})
    body = orjson.loads(codec.write_error(error, as_event=False))["error"]
    assert (body["message"], body["code"], body["x"]) == ("no way", "overloaded", [1])
    event = codec.write_error(error, as_event=True)
    assert orjson.loads(event.partition(b"data: ")[2].partition(b"\n")[0])["error"] == body


@each_dialect
def test_a_long_event_is_held_no_longer_whatever_is_in_it(codec: Answers) -> None:
    """To find that nothing is said in it, all of it would be decoded on the event loop."""
    empty = {
        CHAT: {"choices": []},
        RESPONSES: {"type": "response.output_item.added", "item": {"type": "message"}},
        MESSAGES: {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
    }
    most = MAX_EMPTY_EVENT_BYTES - len(b" " + orjson.dumps({**empty[codec], "more": ""}))
    for size, is_done in ((0, False), (most, False), (most + 1, True)):
        first = codec.hold_first_event(keeps_all=False)
        first.feed(b"data: " + orjson.dumps({**empty[codec], "more": "x" * size}) + b"\n")
        assert first.is_done == is_done


# The parameters of a question that an upstream refuses are found in its error, however it is written.

CHAT, RESPONSES, MESSAGES, _ = CODECS
QUESTION = Question("gpt-5-2025-08-07", 4000, 0.2)
OPENAI = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


@pytest.mark.parametrize("codec", [CHAT, RESPONSES, MESSAGES], ids=lambda codec: codec.name)
@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "Unsupported value", "param": "temperature", "code": "unsupported_value"}},
        {"error": {"message": "Unsupported parameter: 'temperature' is not supported with this model."}},
        {"detail": "Unsupported parameter: temperature"},
        {"message": "temperature: Extra inputs are not permitted"},
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "temperature"], "msg": "Extra inputs", "input": 0.2}]},
        {"errors": {"temperature": ["This field is not allowed."]}},
        {"temperature": ["unknown field"]},
        {"error": "Temperature is not supported"},
        [{"error": {"code": 400, "message": "Invalid value at 'generation_config.temperature'"}}],
        {"object": "error", "message": "Sampling temperature cannot be set", "type": "BadRequestError"},
        "<html><body>Unsupported: temperature</body></html>",
    ],
    ids=str,
)
def test_a_named_parameter_is_found(codec, error) -> None:
    """In a member, in a text, as a key, in another object or as plain text."""
    body = error.encode() if isinstance(error, str) else orjson.dumps(error)
    assert codec.find_refused(QUESTION, body) == "temperature"


@pytest.mark.parametrize(
    ("codec", "message", "form"),
    [
        (CHAT, OPENAI, "max_tokens"),
        (CHAT, "maxTokens is not a known field", "max_tokens"),
        (CHAT, "max_tokens is too large: 6000. This model supports at most 4,096 completion tokens.", "limit>4096"),
        (CHAT, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", "max_tokens"),
        (CHAT, "max_tokens must be less than or equal to 2048", "limit>2048"),
        (RESPONSES, "maxOutputTokens is unknown", "max_output_tokens"),
        (RESPONSES, "Stream must be set to true", "stream"),
        (RESPONSES, "This model only supports streaming.", "stream"),
        (RESPONSES, "Store must be set to false", "store"),
        (MESSAGES, "max_tokens: 6000 > 4096, which is the maximum allowed number of output tokens", "limit>4096"),
        (MESSAGES, "non-streaming requests are not allowed", "stream"),
        (CHAT, "temperatures of the pump", None),
        (CHAT, "no such model: stream_7b", None),
    ],
)  # fmt: skip
def test_only_what_the_question_has_is_found(codec, message: str, form: str | None) -> None:
    """As a word of its own. Of a limit that is only too large, the accepted one is found."""
    assert codec.find_refused(QUESTION, orjson.dumps({"error": {"message": message}})) == form


def test_what_an_error_quotes_of_the_request_is_not_its_reason() -> None:
    """The client's text may contain any word; a member that names a field comes before every text."""
    quoted = {"detail": [{"loc": ["body", "stream"], "msg": "no temperature", "input": {"temperature": 0.2}}]}
    assert CHAT.find_refused(QUESTION, orjson.dumps(quoted)) == "stream"
    assert (
        CHAT.find_refused(QUESTION, orjson.dumps({"input": {"temperature": 1, "max_tokens": 2}, "msg": "no"})) is None
    )


def test_each_form_is_refused_once() -> None:
    """A refusal changes the form; when none is left, nothing is found."""
    question, seen = QUESTION, []
    body = orjson.dumps({"detail": "max_tokens, max_completion_tokens and stream are unknown"})
    while (form := CHAT.find_refused(question, body)) is not None:
        seen.append(form)
        question = Question("m", 4000, 0.2, refused=frozenset(seen))
    assert seen == ["max_tokens", "max_completion_tokens", "stream", "stream=true"]


def test_the_smallest_refused_limit_counts() -> None:
    """A limit that the upstream accepts stays."""
    refused = frozenset({"limit>4096", "limit>2048"})
    limits = [MESSAGES.write_parameters(Question("m", most, refused=refused), None) for most in (4000, 1000)]
    assert [one["max_tokens"] for one in limits] == [2048, 1000]


@given(body=st.binary(max_size=60) | ODD.map(dump))
def test_whatever_comes_names_a_form_or_nothing(body: bytes) -> None:
    """Nothing is raised."""
    for codec in (CHAT, RESPONSES, MESSAGES):
        form = codec.find_refused(QUESTION, body)
        assert form is None or form in codec.list_parameters(QUESTION) or form.startswith("limit>")
