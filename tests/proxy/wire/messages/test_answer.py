"""Responses: usage, texts and refusals are read, however their bytes are cut; errors are written in their form."""

from typing import Any

import orjson
import pytest

from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, ErrorText
from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.messages.answer import EXCEEDED, read_answer
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.overflow import Kind

Wire = dict[str, Any]

SPENT = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000, "output_tokens": 1}
USE = {"type": "tool_use", "id": "c", "name": "ls", "input": {}}
START = {"type": "message_start", "message": {"id": "m", "content": [], "usage": SPENT}}
WHOLE = {
    "type": "message",
    "content": [{"type": "thinking", "thinking": "hm "}, {"type": "text", "text": "Hello"}, {**USE, "input": {"a": 1}}],
    "usage": {**SPENT, "output_tokens": 42},
}
ERROR = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"},
}


def _write(*events: Wire) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event)) for event in events)


def _feed(stream: bytes, size: int) -> Tap:
    tap = Tap.of(MESSAGES, is_stream=True, asks_usage=True)
    for start in range(0, len(stream), size):
        tap.feed(stream[start : start + size], 1.0 + start)
    tap.finish()
    return tap


def test_a_summary_of_the_server_is_a_text() -> None:
    """Results of the server's tools are not: the model did not write them."""
    block = {"type": "compaction", "content": "all of it"}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": "pages"}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "all"}}
    for event, texts in (
        ({"type": "content_block_start", "content_block": block}, ["all of it"]),
        ({"type": "content_block_start", "content_block": found}, []),
        (delta, ["all"]),
    ):
        _, pieces = read_answer(orjson.dumps(event), None)
        assert [piece.text for piece in pieces] == texts


def _hold(stream: bytes, *, keeps_all: bool = False) -> tuple[bytes, bytes, bytes | None]:
    """What passed, what is held, and the event to judge, once that is decided."""
    first, passed = MESSAGES.hold_first_event(keeps_all=keeps_all), b""
    for start in range(0, len(stream), 7):
        passed += first.feed(stream[start : start + 7])
        if first.is_done:
            break
    else:
        first.finish()
    return passed, bytes(first.held), first.data


@pytest.mark.parametrize(
    ("answer", "is_refusal"),
    [
        ({"type": "message", "content": [], "stop_reason": EXCEEDED, "usage": {"output_tokens": 0}}, True),
        ({"type": "message", "content": [{"type": "text", "text": "x"}], "stop_reason": EXCEEDED}, False),
        ({"type": "message", "content": [], "stop_reason": "end_turn"}, False),
        ({"type": "message_delta", "delta": {"stop_reason": EXCEEDED}, "usage": {"output_tokens": 0}}, True),
        ({"type": "message_delta", "delta": {"stop_reason": EXCEEDED}, "usage": {"output_tokens": 1}}, True),
        (ERROR, True),
        (EXCEEDED, False),
    ],
)
def test_an_empty_completion_at_the_windows_end_is_a_refusal(answer: object, *, is_refusal: bool) -> None:
    """In one piece, and as the event after `message_start`. Usage proves nothing: `message_start` reports a token."""
    found = MESSAGES.read_refusal(200, orjson.dumps(answer))
    assert (found is not None) is is_refusal


def test_a_client_recognises_that_its_prompt_is_too_long() -> None:
    """By the words of Anthropic's API, with numbers in their order. Our own text and code come with them."""
    for tokens, limit, words in (
        (9000, 8000, "prompt is too long: 9000 tokens > 8000 maximum. Too much."),
        (8000, 8000, "prompt is too long: 8001 tokens > 8000 maximum. Too much."),
        (None, 8000, "prompt is too long: Too much."),
    ):
        error = ErrorText("Too much.", PROMPT_TOO_LONG, tokens=tokens, limit_tokens=limit)
        body = MESSAGES.write_error(error, as_event=False)
        assert orjson.loads(body) == {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": words, "code": PROMPT_TOO_LONG},
        }
        found = MESSAGES.read_refusal(400, body)
        assert found.kind is Kind.PROMPT
        assert MESSAGES.write_error(error, as_event=True) == b"event: error\ndata: %b\n\n" % body


@pytest.mark.parametrize(
    ("code", "kind", "expected"),
    [
        ("overloaded", "trimtab_error", "overloaded_error"),
        ("upstream_unreachable", "trimtab_error", "api_error"),
        ("unknown", "invalid_request_error", "invalid_request_error"),
    ],
)
def test_our_own_errors_have_types_of_the_api(code: str, kind: str, expected: str) -> None:
    error = orjson.loads(MESSAGES.write_error(ErrorText("x", code, kind, "model"), as_event=False))["error"]
    assert error == {"type": expected, "message": "x", "code": code, "param": "model"}


def test_a_whole_response_becomes_events_of_a_stream() -> None:
    """A completion as its start and its end; an error as an error, with the status if it has another form."""
    stream = MESSAGES.write_event(200, orjson.dumps(WHOLE, option=orjson.OPT_INDENT_2))
    tap = _feed(stream, 50)
    assert tap.usage == Usage(3210, 42, 3000, written_tokens=200)
    start, stop = [orjson.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: ")]
    assert (start["message"], stop["type"]) == (WHOLE, "message_stop")
    assert MESSAGES.write_event(400, orjson.dumps(ERROR)) == _write(ERROR)
    other = MESSAGES.write_event(502, b"<html>\nBad gateway</html>")
    assert b"event: error\ndata: " in other
    assert b"status 502: <html>\\nBad gateway" in other
    assert b"no reason given" in MESSAGES.write_event(500, b" ")


@pytest.mark.parametrize("data", [b'["content_block"]', b'"content_block', b'{"content_block": null}'])
def test_an_event_of_another_form_is_not_held(data: bytes) -> None:
    _, _, judged = _hold(_write(START) + b"data: " + data + b"\n\n")
    assert judged in (None, b" " + data)
    assert not MESSAGES.is_greeting(data)
