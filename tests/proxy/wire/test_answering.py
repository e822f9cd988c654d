"""Completions in answers, whole or streamed, and answers and errors as events, in each dialect."""

from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from trimtab.proxy.wire.answering import Answers, Completion, ErrorText
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
    ],
)
def test_a_completion_says_what_was_written_and_why_it_ended(told: tuple[Answers, Any], expected: Completion) -> None:
    """Content as a text or in parts. Thinking is no part of it. An odd usage is none."""
    codec, answer = told
    assert codec.read_completion(orjson.dumps(answer)) == expected


@pytest.mark.parametrize(
    "told",
    [
        (CHAT, {"choices": [{"message": {"content": "ab", "reasoning": {"text": "hm"}, "refusal": {}}}]}),
        (CHAT, {"choices": [{"message": {"content": "ab", "tool_calls": [{"function": {"arguments": {}}}]}}]}),
        (MESSAGES, {"content": [{"type": "text", "text": "ab", "thinking": {}, "name": 5}]}),
        (
            RESPONSES,
            {"object": None, "output": [{"type": "message", "content": [{"text": "ab"}], "id": 5}, {"type": 5}]},
        ),
    ],
)
def test_what_a_server_writes_otherwise_beside_the_text_loses_no_summary(told: tuple[Answers, Any]) -> None:
    codec, answer = told
    assert codec.read_completion(orjson.dumps(answer)).text == "ab"


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
    for size, is_done in ((0, False), (MAX_EMPTY_EVENT_BYTES, True)):
        first = codec.hold_first_event(keeps_all=False)
        first.feed(b"data: " + orjson.dumps({**empty[codec], "more": "x" * size}) + b"\n")
        assert first.is_done == is_done
