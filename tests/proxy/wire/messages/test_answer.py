"""Responses: usage, texts and refusals are read, however their bytes are cut; errors are written in their form."""

from typing import Any

import orjson
import pytest

from trimtab.proxy.compaction.caches import Caches
from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, ErrorText, Question
from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.messages.answer import EXCEEDED, MOST_INSTRUCTIONS_CHARS, NOTE, read_answer
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.overflow import Kind
from trimtab.proxy.wire.transcript.body import UndecodableError

Wire = dict[str, Any]

SPENT = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000, "output_tokens": 1}
USE = {"type": "tool_use", "id": "c", "name": "ls", "input": {}}
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


# Anthropic's compaction on demand: what is asked, and which answers have a note.

BLOCK = {"type": "compaction", "content": "Nine metres.", "signature": "c2ln"}
TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
ITERATIONS = [
    {"type": "compaction", "input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 90},
    {"type": "compaction", "input_tokens": 1, "output_tokens": 2, "cache_creation_input_tokens": 4},
    {"output_tokens": 30},
    {"input_tokens": 600},
]
USAGE = {"input_tokens": 0, "output_tokens": 0, "iterations": ITERATIONS}


def _make_answer(*blocks: Any, stop_reason: str = "compaction", **more: Any) -> dict[str, Any]:
    return {"type": "message", "content": list(blocks), "stop_reason": stop_reason, "usage": USAGE, **more}


def _read(answer: Any) -> Any:
    return NOTE.read(orjson.dumps(answer))


def _ask(instructions: str = "", messages: Any = TALK, **more: Any) -> dict[str, Any] | None:
    body = {"model": "claude", "max_tokens": 900, "messages": messages, **more}
    request = MESSAGES.read(orjson.dumps(body))
    prefix = MESSAGES.decode(request, Counting(len, Caches().known))
    asked = MESSAGES.ask_provider(request, prefix, Question("claude", 400, 0.2), instructions=instructions)
    return None if asked is None else orjson.loads(asked)


def test_the_conversation_is_sent_as_it_is_with_the_parameter() -> None:
    """With the members that prompt and cache depend on. The budget of a task alone is no hindrance."""
    tools = [{"name": "t", "input_schema": {"type": "object"}}]
    management = {"edits": [{"type": "clear_thinking_20251015"}]}
    more: dict[str, Any] = {"system": "Be brief.", "tools": tools, "metadata": {"user_id": "u"}, "stream": True}
    more |= {"stop_sequences": ["x"], "temperature": 1, "context_management": management}
    asked = _ask(**more, tool_choice={"type": "any"})
    kept = {"model": "claude", "system": "Be brief.", "tools": tools, "metadata": {"user_id": "u"}, "messages": TALK}
    assert asked == {**kept, "max_tokens": 400, "stream": False, "compaction": {"type": "summarize"}}
    assert _ask(output_config={"task_budget": {"total": 9}}) is not None


def test_instructions_replace_the_providers_own() -> None:
    """So they begin with what it must be told, and end where its limit is."""
    asked = _ask("Keep names.")
    assert asked["compaction"]["instructions"].endswith("Do not call tools.\nKeep names.")
    longest = _ask("n" * MOST_INSTRUCTIONS_CHARS)
    assert len(longest["compaction"]["instructions"]) == MOST_INSTRUCTIONS_CHARS


@pytest.mark.parametrize(
    "more",
    [
        {"context_management": {"edits": [{"type": "compact_20260112"}]}},
        {"output_config": {"task_budget": {"total": 9, "remaining": 3}}},
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
        {"messages": [{"role": "system", "content": "s"}, *TALK]},
        {"messages": [{"role": "assistant", "content": [BLOCK]}, *TALK]},
    ],
)
def test_it_is_not_asked_if_the_request_or_later_ones_would_be_refused(more: dict[str, Any]) -> None:
    """A client's own compaction, a running budget, a prescribed form, a system message that would come before."""
    assert _ask(**more) is None


def test_a_signed_block_is_the_note() -> None:
    """With its own bytes and metadata; its text can be read. Its cost is that of all iterations."""
    raw = b'{ "type":"compaction","content":"Nine \\u006detres.", "signature":"c2ln" }'
    answer = orjson.dumps(_make_answer()).replace(b'"content":[]', b'"content":[' + raw + b"]")
    found = NOTE.read(answer)
    assert found.note == b'{"role":"assistant","content":[' + raw + b"]}"
    assert found.text == "Nine metres."
    usage = found.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.written_tokens) == (705, 37, 90, 4)
    block = {**BLOCK, "encrypted_content": "c2VhbGVk"}
    assert orjson.loads(_read(_make_answer(block)).note)["content"] == [block]


def test_the_block_of_a_stream_comes_whole() -> None:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 3}}},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": BLOCK},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "compaction"}, "usage": USAGE},
        {"type": "message_stop"},
    ]
    stream = b"".join(b"event: x\ndata: %b\n\n" % orjson.dumps(event) for event in events)
    assert NOTE.read(stream) == _read(_make_answer(BLOCK))
    cut = [events[0], {**events[4], "delta": {"stop_reason": "max_tokens"}}]
    assert NOTE.read(b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in cut)).was_cut


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [BLOCK, {"type": "text", "text": "t"}],
        [{**BLOCK, "type": "text"}],
        [{**BLOCK, "content": None}],
        [{**BLOCK, "content": " "}],
        [{**BLOCK, "signature": ""}],
        [{"type": "compaction", "content": "t"}],
        [{**BLOCK, "strange": 1}],
    ],
)
def test_anything_else_is_no_note(blocks: list[Any]) -> None:
    """A block that is not signed, is blank, or is not alone."""
    assert _read(_make_answer(*blocks)).note == b""


def test_why_there_is_none() -> None:
    """It was cut, refused, or the model answered: that text is no note."""
    assert _read(_make_answer(stop_reason="max_tokens")).was_cut
    assert not _read(_make_answer(stop_reason="refusal")).was_cut
    assert _read(_make_answer(stop_reason="refusal")).was_filtered
    assert not _read(_make_answer(stop_reason="end_turn")).was_filtered
    assert _read(_make_answer({"type": "text", "text": "Hi"}, {"type": "text", "text": "!"})).text == "Hi!"


@pytest.mark.parametrize(
    "answer",
    [b"", b"{}", b'{"content":[1]}', b'{"type":"error","content":[]}'],
)
def test_what_cannot_be_read_is_said_to_be_so(answer: bytes) -> None:
    with pytest.raises(UndecodableError):
        NOTE.read(answer)


def test_a_strange_usage_costs_the_note_nothing() -> None:
    for usage in (None, [1], {"iterations": 3}, {"iterations": [1, {"input_tokens": "x"}]}):
        found = _read(_make_answer(BLOCK, usage=usage))
        assert found.note
        assert found.usage.prompt_tokens is None
