"""In each dialect: usage and texts are found however an answer is cut, and a stream is held until it says something."""

from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import dump, odd_objects

from trimtab.proxy.wire.answering import Completion
from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.dialects import CODECS
from trimtab.proxy.wire.transcript.body import UndecodableError

Wire = dict[str, Any]
CHAT, RESPONSES, MESSAGES, _ = CODECS


class Answer(NamedTuple):
    """events: of its stream. silent: events that say nothing yet. saying: events that do. refused: an error."""

    codec: Codec
    events: list[Wire]
    whole: Wire
    usage: Usage
    texts: list[str]
    silent: list[Wire]
    saying: list[Any]
    refused: Wire


def _delta(index: int = 0, **delta: object) -> Wire:
    return {"choices": [{"index": index, "delta": delta}]}


def _call(**function: object) -> Wire:
    return {"tool_calls": [{"index": 0, "function": function}]}


def _make_chat() -> Answer:
    """Silent chunks are those of Azure's API, OpenAI's and vLLM's."""
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "x": {"y": 1}}
    events = [
        _delta(role="assistant", content=""),
        _delta(content="héllo ") | {"usage": None},
        _delta(content="wörld\n"),
        _delta(1, content="other"),
        _delta(reasoning_content="because"),
        _delta(reasoning=" so"),
        _delta(refusal="no"),
        _delta(**_call(name="ls", arguments="")),
        _delta(**_call(arguments='{"a":')),
        _delta(**_call(arguments="1}")),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
        {"choices": [], "usage": usage},
    ]
    message = {"content": "héllo wörld\n", "reasoning_content": "because so", "refusal": "no"}
    choices = [
        {"index": 0, "message": message | _call(name="ls", arguments='{"a":1}'), "finish_reason": "length"},
        {"index": 1, "message": {"content": "other", "tool_calls": None}},
    ]
    silent = [
        {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        _delta(role="assistant"),
        _delta(role="assistant", content="", refusal=None, tool_calls=[]) | {"usage": None},
        {"choices": [{"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": None}], "error": None},
    ]
    saying = [
        *events[1:],
        _delta(role="assistant", audio={"id": "a"}),
        {"choices": [{"index": 0, "delta": {"content": ""}}, {"index": 1, "delta": {"content": "x"}}]},
        {"choices": [], "error": {"message": "busy"}},
        {"choices": "odd"},
        {"choices": [7]},
    ]
    texts = ["because so", "héllo wörld\n", "ls", "no", "other", '{"a":1}']
    refused = {"error": {"message": "This model's maximum context length is 16 tokens", "code": 400}}
    return Answer(CHAT, events, {"choices": choices, "usage": usage}, Usage(7, 3), texts, silent, saying, refused)


def _event(kind: str, **members: object) -> Wire:
    return {"type": f"response.{kind}", "sequence_number": 1, **members}


def _piece(kind: str, output_index: int, delta: str) -> Wire:
    return _event(f"{kind}.delta", output_index=output_index, delta=delta, item_id="x", obfuscation="zzzz")


def _make_response() -> Answer:
    """An item that is empty so far says nothing: gateways open one before the upstream has read the prompt."""
    said = [{"type": "output_text", "text": "héllo wörld\n"}, {"type": "refusal", "refusal": "no"}]
    output = [
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "because so"}]},
        {"type": "message", "role": "assistant", "content": said},
        {"type": "function_call", "call_id": "1", "name": "ls", "arguments": '{"a":1}'},
        {"type": "custom_tool_call", "call_id": "2", "name": "run", "input": "x y"},
    ]
    usage = {
        "input_tokens": 70,
        "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 20},
    }
    begun = {"id": "r", "object": "response", "status": "in_progress", "error": None, "output": [], "usage": None}
    cut = {"reason": "max_output_tokens"}
    whole = begun | {"status": "incomplete", "incomplete_details": cut, "output": output, "usage": usage}
    events = [
        _event("created", response=begun),
        _event("in_progress", response=begun),
        _event("output_item.added", output_index=0, item=output[0] | {"summary": []}),
        _piece("reasoning_summary_text", 0, "because"),
        _piece("reasoning_summary_text", 0, " so"),
        _piece("output_text", 1, "héllo "),
        _piece("output_text", 1, "wörld\n"),
        _piece("refusal", 1, "no"),
        _event("output_text.done", output_index=1, text="héllo wörld\n"),
        _event("output_item.added", output_index=2, item=output[2] | {"arguments": ""}),
        _piece("function_call_arguments", 2, '{"a":'),
        _piece("function_call_arguments", 2, "1}"),
        _event("output_item.added", output_index=3, item=output[3] | {"input": ""}),
        _piece("custom_tool_call_input", 3, "x y"),
        _event("output_item.done", output_index=3, item=output[3]),
        _event("incomplete", response=whole),
    ]
    part = {"type": "output_text", "text": "", "annotations": []}
    silent = [
        *events[:3],
        _event("output_item.added", output_index=0, item={"type": "message", "content": []}),
        _event("content_part.added", output_index=0, content_index=0, part=part),
        _event("reasoning_summary_part.added", output_index=0, part={"type": "summary_text", "text": ""}),
    ]
    saying = [
        *(events[9] | {"item": item} for item in (output[2], {"type": "web_search_call"}, {"type": []}, 7)),
        _event("content_part.added", part=part | {"text": "x"}),
    ]
    texts = ["because so", "héllo wörld\n", "ls", "no", "run", "x y", '{"a":1}']
    error = {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}
    refused = _event("failed", response=begun | {"status": "failed", "error": error})
    return Answer(RESPONSES, events, whole, Usage(70, 30, 64, 20, 0), texts, silent, saying, refused)


def _open(index: int, block: object) -> Wire:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _go_on(index: int, kind: str, **delta: str) -> Wire:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


def _make_message() -> Answer:
    """Prompt tokens include those that the cache read and wrote; the last count of output holds."""
    spent = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000}
    use = {"type": "tool_use", "id": "c", "name": "ls", "input": {}}
    start = {"type": "message_start", "message": {"id": "m", "content": [], "usage": {**spent, "output_tokens": 1}}}
    thinks, says = _open(0, {"type": "thinking", "thinking": ""}), _open(1, {"type": "text", "text": ""})
    events = [
        start,
        thinks,
        {"type": "ping"},
        _go_on(0, "thinking_delta", thinking="hm "),
        _go_on(0, "signature_delta", signature="c2lnbmVk"),
        says,
        _go_on(1, "text_delta", text="Hel"),
        _go_on(1, "text_delta", text="lo"),
        _open(2, use),
        _go_on(2, "input_json_delta", partial_json='{"a":1}'),
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 42}},
        {"type": "message_stop"},
    ]
    blocks = [{"type": "thinking", "thinking": "hm "}, {"type": "text", "text": "Hello"}, {**use, "input": {"a": 1}}]
    whole = {"type": "message", "content": blocks, "stop_reason": "max_tokens", "usage": {**spent, "output_tokens": 42}}
    odd = [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "x"}, {"type": "tool_use"}, 7]
    saying = [*events[6:9], events[10], *(_open(0, block) for block in (*odd, {"type": []}))]
    silent = [start, thinks, says, _go_on(0, "text_delta", text="")]
    error = {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}
    usage, texts = Usage(3210, 42, 3000, written_tokens=200), ["Hello", "hm ", "ls", '{"a":1}']
    return Answer(MESSAGES, events, whole, usage, texts, silent, saying, {"type": "error", "error": error})


ANSWERS = [_make_chat(), _make_response(), _make_message()]
each_answer = pytest.mark.parametrize("answer", ANSWERS, ids=[answer.codec.name for answer in ANSWERS])
COMMENT = b": ping\n\n"
ODD_EVENTS = [
    b"data: {bad", b"data", b"data: [1]", b"nonsense: x", b"data: \xff\xfe", b'data: {"choices":' + b"[" * 5000,
    b'data: {"usage":{"prompt_tokens":"seven"}}', b'data: {"choices":[{"delta":5}]}', b'data: {"choices":[null]}',
    b'data: {"choices":[{"delta":{"content":"\xff"}}]}',
]  # fmt: skip


def _write(*events: Wire, end: bytes = b"\n") -> bytes:
    return b"".join(
        (b"event: " + event["type"].encode() + end if "type" in event else b"")
        + (b"data: " + orjson.dumps(event) + end + end)
        for event in events
    )


def _read(codec: Codec, *chunks: bytes, is_stream: bool) -> tuple[Usage | None, list[str]]:
    tap = Tap.of(codec, is_stream=is_stream)
    for chunk in chunks:
        tap.feed(chunk)
    tap.finish()
    texts: list[str] = []
    tap.count_completion(lambda text: len(texts.append(text) or text))
    assert tap.text_chars == sum(map(len, texts))
    return tap.usage, sorted(texts)


@each_answer
@given(end=st.sampled_from([b"\n", b"\r\n"]), cuts=st.lists(st.integers(0, 4000), max_size=30).map(sorted))
def test_usage_and_texts_are_found_however_the_stream_is_cut(answer: Answer, end: bytes, cuts: list[int]) -> None:
    """Within a character or a line end, too. Each text counts once, although a last event may repeat all of them."""
    odd = (end + end).join((*ODD_EVENTS, b""))
    body = COMMENT + odd + _write(*answer.events, end=end)
    places = [0, *(min(cut, len(body)) for cut in cuts), len(body)]
    chunks = (body[start:stop] for start, stop in pairwise(places))
    assert _read(answer.codec, *chunks, is_stream=True) == (answer.usage, answer.texts)


@each_answer
def test_an_answer_in_one_piece_is_read_as_its_stream(answer: Answer) -> None:
    body = orjson.dumps(answer.whole)
    chunks = (body[at : at + 3] for at in range(0, len(body), 3))
    assert _read(answer.codec, *chunks, is_stream=False) == (answer.usage, answer.texts)


@pytest.mark.parametrize(
    ("codec", "events", "sent"),
    [
        (CHAT, [_delta(content="x" * 40)], 10),
        (CHAT, [_delta(reasoning="y" * 990), _delta(content="x" * 40)], 1000),
        (CHAT, [_delta(reasoning_content="y" * 989), _delta(content="x" * 40)], None),
        (RESPONSES, [_piece("output_text", 0, "hello")], 10),
        (MESSAGES, [_go_on(0, "text_delta", text="hello")], 10),
    ],
)
def test_tokens_of_reasoning_that_was_not_sent_are_told_apart(
    codec: Codec, events: list[Wire], sent: int | None
) -> None:
    """The answer has a thousand tokens, 990 of reasoning. If only part of it was sent, the number is unknown."""
    details = {"reasoning_tokens": 990}
    spent = {
        "chat": {"choices": [], "usage": {"completion_tokens": 1000, "completion_tokens_details": details}},
        "responses": _event("completed", response={"usage": {"output_tokens": 1000, "output_tokens_details": details}}),
        "messages": {
            "type": "message_delta",
            "usage": {"output_tokens": 1000, "output_tokens_details": {"thinking_tokens": 990}},
        },
    }
    tap = Tap.of(codec, is_stream=True)
    tap.feed(_write(*events, spent[codec.name]))
    tap.finish()
    assert tap.find_sent_tokens(1000) == sent


@each_answer
@given(
    event=odd_objects(
        "type", "index", "delta", "content_block", "content", "message", "usage", "response", "item", "output", "error",
        "code", "choices",
        delta=odd_objects("text", "thinking", "partial_json", "usage", "content", "tool_calls"),
        content=st.lists(odd_objects("type", "text", "name", "input", "content"), max_size=3),
        content_block=odd_objects("type", "text", "name", "input", "content", type=st.just("compaction")),
        message=odd_objects("usage", usage=odd_objects("input_tokens", "output_tokens")),
        choices=st.lists(odd_objects("delta", "message", "finish_reason", "index"), max_size=2),
    ).map(dump) | st.binary(max_size=40)
)  # fmt: skip
def test_whatever_an_upstream_sends_is_read_without_an_error(answer: Answer, event: bytes) -> None:
    """And beside other events, which are read all the same."""
    codec, stream = answer.codec, b"data: " + event + b"\n\n"
    _read(codec, event, is_stream=False)
    usage, _ = _read(codec, stream + _write(*answer.events), is_stream=True)
    assert usage is not None
    for status in (200, 400, 500):
        codec.read_refusal(status, event)
        assert codec.write_event(status, event).endswith(b"\n\n")
    codec.hold_first_event(keeps_all=False).feed(_write(*answer.silent) + stream)
    for body in (event, stream):
        with suppress(UndecodableError):
            assert isinstance(codec.read_completion(body), Completion)


@each_answer
@pytest.mark.parametrize("keeps_all", [True, False])
def test_an_error_behind_a_greeting_is_held_with_it(answer: Answer, *, keeps_all: bool) -> None:
    """Servers say who will speak before they have read the prompt. Comments pass."""
    first, free = answer.codec.hold_first_event(keeps_all=keeps_all), b""
    stream = b"".join(_write(event) + COMMENT for event in answer.silent[:2]) + _write(answer.refused)
    for at in range(len(stream)):
        assert not first.is_done
        free += first.feed(stream[at : at + 1])
    assert first.is_done
    assert answer.codec.read_refusal(200, first.data or b"") is not None
    assert free == (b"" if keeps_all else COMMENT * 2)
    assert bytes(first.held) == (stream if keeps_all else stream.replace(COMMENT, b""))


@each_answer
def test_a_stream_is_held_until_it_says_something(answer: Answer) -> None:
    """An event of another form says something, too."""
    for event in answer.saying:
        first, silent, line = answer.codec.hold_first_event(keeps_all=False), _write(*answer.silent), _write(event)
        assert first.feed(silent) == b""
        assert (first.is_done, first.is_greeted) == (False, True)
        first.feed(line)
        assert first.is_done, event
        assert first.data is None or answer.codec.read_refusal(200, first.data) is None
        assert bytes(first.held) == silent + line


@each_answer
def test_a_stream_that_ends_behind_its_greeting_is_no_refusal(answer: Answer) -> None:
    first = answer.codec.hold_first_event(keeps_all=False)
    first.feed(_write(*answer.silent))
    first.finish()
    assert (first.is_done, first.data) == (True, None)
    assert bytes(first.held) == _write(*answer.silent)


@each_answer
def test_a_streamed_answer_is_the_same_completion(answer: Answer) -> None:
    """Also without its content type, and with comments before it. Only the first choice of a chat counts."""
    streamed = answer.codec.read_completion(COMMENT + _write(*answer.events) + b"data: [DONE]\n\n")
    assert streamed == answer.codec.read_completion(orjson.dumps(answer.whole))
    assert (streamed.text in answer.texts, streamed.usage) == (True, answer.usage)
    assert streamed.was_cut
    assert streamed.calls_tool
