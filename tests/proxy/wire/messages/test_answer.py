"""Responses: usage, texts and refusals are read, however their bytes are cut; errors are written in their form."""

from itertools import takewhile
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import dump, odd_objects

from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, ErrorText
from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.messages.answer import EXCEEDED, read_answer
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.overflow import Kind
from trimtab.proxy.wire.transcript.body import UndecodableError

Wire = dict[str, Any]

SPENT = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000, "output_tokens": 1}
USE = {"type": "tool_use", "id": "c", "name": "ls", "input": {}}
START = {"type": "message_start", "message": {"id": "m", "content": [], "usage": SPENT}}
PING = {"type": "ping"}
EVENTS = [
    START,
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    PING,
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2lnbmVk"}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hel"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "lo"}},
    {"type": "content_block_start", "index": 2, "content_block": USE},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 42}},
    {"type": "message_stop"},
]
WHOLE = {
    "type": "message",
    "content": [{"type": "thinking", "thinking": "hm "}, {"type": "text", "text": "Hello"}, {**USE, "input": {"a": 1}}],
    "usage": {**SPENT, "output_tokens": 42},
}
ERROR = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"},
}


def count(text: str) -> int:
    """One token per character."""
    return len(text)


def _write(*events: Wire) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event)) for event in events)


def _feed(stream: bytes, size: int) -> Tap:
    tap = Tap.of(MESSAGES, is_stream=True, asks_usage=True)
    for start in range(0, len(stream), size):
        tap.feed(stream[start : start + size], 1.0 + start)
    tap.finish()
    return tap


@given(st.integers(1, 400))
def test_a_stream_tells_its_usage_and_its_texts(size: int) -> None:
    """Wherever it is cut. Prompt tokens include those that the cache read and wrote; the last count of output holds."""
    tap = _feed(_write(*EVENTS), size)
    assert tap.usage == Usage(3210, 42, 3000, written_tokens=200)
    assert tap.count_completion(count) == len("hm " + "Hello" + "ls" + '{"a":1}')
    assert tap.text_chars == tap.count_completion(count)


def test_a_whole_response_tells_the_same() -> None:
    tap = Tap.of(MESSAGES, is_stream=False)
    tap.feed(orjson.dumps(WHOLE))
    tap.finish()
    assert tap.usage == Usage(3210, 42, 3000, written_tokens=200)
    assert tap.count_completion(count) == len("hm " + "Hello" + "ls" + '{"a":1}')


def test_a_later_event_may_name_the_prompt_again() -> None:
    """Some servers know it only at the end; others leave the cached tokens out."""
    _, usage = START, None
    for event, told in (
        (START, 3210),
        ({"type": "message_delta", "usage": {"input_tokens": 10, "output_tokens": 5}}, 3210),
        ({"type": "message_delta", "usage": {"input_tokens": 9000, "output_tokens": 5}}, 9000),
    ):
        usage, _ = read_answer(orjson.dumps(event), usage)
        assert usage.prompt_tokens == told


def test_thinking_that_was_not_sent_is_known() -> None:
    """The upstream reports its tokens; only the rest was sent as text."""
    spent = {**SPENT, "output_tokens": 500, "output_tokens_details": {"thinking_tokens": 480}}
    tap = _feed(_write(START, EVENTS[6], {"type": "message_delta", "delta": {}, "usage": spent}), 1000)
    assert tap.usage.reasoning_tokens == 480
    assert tap.find_sent_tokens(500) == 20


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


@given(
    odd_objects(
        "type", "index", "delta", "content_block", "content", "message", "usage",
        delta=odd_objects("text", "thinking", "partial_json", "usage"),
        content=st.lists(odd_objects("type", "text", "name", "input", "content"), max_size=3),
        content_block=odd_objects("type", "text", "name", "input", "content", type=st.just("compaction")),
        message=odd_objects("usage", usage=odd_objects("input_tokens", "output_tokens")),
    )
)  # fmt: skip
def test_odd_events_are_read_without_an_error(event: object) -> None:
    usage, pieces = read_answer(dump(event), None)
    assert usage is None or isinstance(usage, Usage)
    assert all(isinstance(piece.text, str) for piece in pieces or ())
    for status in (200, 400):
        MESSAGES.read_refusal(status, dump(event))
        _hold(_write({"type": "message_start"}) + b"data: " + dump(event) + b"\n\n")
    assert MESSAGES.write_event(200, dump(event)).startswith(b"event: ")


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


@pytest.mark.parametrize("before", [(), (PING,), (START,), (PING, PING, START), (START, PING, PING)])
def test_an_error_is_held_with_what_precedes_it(before: tuple[Wire, ...]) -> None:
    """Pings pass, since they say nothing; `message_start` is held, with the pings behind it."""
    pings = _write(*takewhile(lambda event: event is PING, before))
    passed, held, data = _hold(_write(*before, ERROR))
    assert data is not None
    assert MESSAGES.read_refusal(200, data) is not None
    assert passed == pings
    assert held == _write(*before, ERROR)[len(pings) :]


def test_nothing_passes_before_the_answer_has_begun() -> None:
    passed, held, _ = _hold(_write(PING, START, ERROR), keeps_all=True)
    assert (passed, held) == (b"", _write(PING, START, ERROR))


@pytest.mark.parametrize("events", [EVENTS[:2], [START, PING, EVENTS[1]], [START, EVENTS[5]]])
def test_a_completion_is_held_no_longer_than_its_first_block(events: list[Wire]) -> None:
    """Pings may come before the block."""
    _, _, data = _hold(_write(*events))
    assert data is None or MESSAGES.read_refusal(200, data) is None


LONG = "prompt is too long: 200251 tokens > 200000 maximum"
TOGETHER = "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or"
LLAMA = "request (33056 tokens) exceeds the available context size (32768 tokens), try increasing it"
VLLM = (
    "You passed 1015 input tokens and requested 10 output tokens. However, the model's context length is only 1024"
    " tokens, resulting in a maximum input length of 1014 tokens."
)
SGLANG = "The input (345516 tokens) is longer than the model's context length (262144 tokens)."
MOONSHOT = "Invalid request: Your request exceeded model token limit: 262144 (requested: 275363)"


@pytest.mark.parametrize(
    ("status", "kind", "message", "limit", "requested"),
    [
        (400, "invalid_request_error", LONG, 200000, 200251),
        (400, "invalid_request_error", TOGETHER, 200000, 242959),
        (413, "invalid_request_error", "Request size exceeds model context window", None, None),
        (400, "invalid_request_error", "Prompt is too long (server-side context limit reached).", None, None),
        (400, "invalid_request_error", "Prompt exceeds maximum context length", None, None),
        (400, "validation_error", "Input is too long for requested model.", None, None),
        (400, "exceed_context_size_error", LLAMA, 32768, 33056),
        (400, "BadRequestError", VLLM, 1024, 1025),
        (400, "BadRequestError", SGLANG, 262144, 345516),
        (400, "api_error", MOONSHOT, 262144, 275363),
    ],
)
def test_refusals_of_servers_of_this_api_are_recognised(
    status: int, kind: str, message: str, limit: int | None, requested: int | None
) -> None:
    """Anthropic, Bedrock, llama.cpp, vLLM, SGLang, Moonshot and proxies, as reported by their users."""
    body = orjson.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
    for found in (MESSAGES.read_refusal(status, body), MESSAGES.read_refusal(200, body)):
        assert (found.kind, found.limit, found.requested) == (Kind.PROMPT, limit, requested)
        assert not found.is_flat


def test_a_body_that_is_too_large_is_a_refusal_for_its_size() -> None:
    body = orjson.dumps(
        {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}
    )
    found = MESSAGES.read_refusal(413, body)
    assert found.kind is Kind.SIZE


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("overloaded_error", "Overloaded"),
        (
            "rate_limit_error",
            "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
        ),
        ("invalid_request_error", "messages.1: all messages must have non-empty content"),
        ("invalid_request_error", "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens"),
    ],
)
def test_other_errors_are_no_overflow_of_the_prompt(kind: str, message: str) -> None:
    body = orjson.dumps({"type": "error", "error": {"type": kind, "message": message}})
    for status in (200, 400):
        found = MESSAGES.read_refusal(status, body)
        assert found is None or found.kind is Kind.COMPLETION


@pytest.mark.parametrize(
    ("answer", "is_refusal"),
    [
        ({"type": "message", "content": [], "stop_reason": EXCEEDED, "usage": {"output_tokens": 0}}, True),
        ({"type": "message", "content": [], "stop_reason": EXCEEDED}, True),
        ({"type": "message", "content": [{"type": "text", "text": "x"}], "stop_reason": EXCEEDED}, False),
        ({"type": "message", "content": [], "stop_reason": EXCEEDED, "usage": {"output_tokens": 1}}, True),
        ({"type": "message", "content": [], "stop_reason": "end_turn"}, False),
        ({"type": "message_delta", "delta": {"stop_reason": EXCEEDED}, "usage": {"output_tokens": 0}}, True),
        ({"type": "message_delta", "delta": {"stop_reason": EXCEEDED}, "usage": {"output_tokens": 1}}, True),
        ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, False),
        (START, False),
        (PING, False),
        (ERROR, True),
        ([1], False),
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
        ("invalid_api_key", "trimtab_error", "authentication_error"),
        ("client_limit_reached", "trimtab_error", "rate_limit_error"),
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


@pytest.mark.parametrize("events", [[START, {"type": "error", "error": {}}], [PING]])
def test_a_stream_that_fails_or_has_no_beginning_is_no_completion(events: list[Wire]) -> None:
    with pytest.raises(UndecodableError):
        MESSAGES.join(list(map(orjson.dumps, events)))


@pytest.mark.parametrize(
    ("event", "is_held"),
    [
        (EVENTS[1], True),
        (EVENTS[5], True),
        ({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}}, True),
        (EVENTS[8], False),
        (
            {"type": "content_block_start", "index": 0, "content_block": {"type": "redacted_thinking", "data": "x"}},
            False,
        ),
        ({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "x"}}, False),
        ({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use"}}, False),
        ({"type": "content_block_start", "index": 0, "content_block": 7}, False),
        ({"type": "content_block_start", "index": 0, "content_block": {"type": []}}, False),
        (EVENTS[6], False),
        (EVENTS[10], False),
    ],
)
def test_a_stream_is_held_until_a_block_has_content(event: Wire, *, is_held: bool) -> None:
    """Gateways open a block before the upstream has read the prompt; an error may still follow it."""
    start, line = _write(START), _write(event)
    _, held, judged = _hold(start + line + _write(ERROR))
    is_refused = judged is not None and MESSAGES.read_refusal(200, judged) is not None
    assert is_refused is is_held
    assert held.startswith(start + line) or not is_held


@pytest.mark.parametrize("data", [b'["content_block"]', b'"content_block', b'{"content_block": null}'])
def test_an_event_of_another_form_is_not_held(data: bytes) -> None:
    _, _, judged = _hold(_write(START) + b"data: " + data + b"\n\n")
    assert judged in (None, b" " + data)
    assert not MESSAGES.is_greeting(data)
