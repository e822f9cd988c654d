"""Reading a response."""

from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import dump, odd_objects

from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.overflow import Kind
from trimtab.proxy.wire.responses.answer import join
from trimtab.proxy.wire.responses.codec import RESPONSES
from trimtab.proxy.wire.transcript.body import UndecodableError

USAGE = {
    "input_tokens": 70,
    "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 100,
}
OUTPUT = [
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "because so"}]},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "héllo wörld\n"}, {"type": "refusal", "refusal": "no"}],
    },
    {"type": "function_call", "call_id": "1", "name": "ls", "arguments": '{"a":1}'},
    {"type": "custom_tool_call", "call_id": "2", "name": "run", "input": "x y"},
]
RESPONSE = {"id": "resp_1", "object": "response", "status": "in_progress", "error": None, "output": [], "usage": None}
DONE = RESPONSE | {"status": "completed", "output": OUTPUT, "usage": USAGE}


def _event(kind: str, **members: object) -> dict[str, object]:
    return {"type": kind, "sequence_number": 1, **members}


def _delta(kind: str, output_index: int, delta: str) -> dict[str, object]:
    return _event(f"response.{kind}.delta", output_index=output_index, delta=delta, item_id="x", obfuscation="zzzz")


GREETING = [_event("response.created", response=RESPONSE), _event("response.in_progress", response=RESPONSE)]
EVENTS = [
    *GREETING,
    _event("response.output_item.added", output_index=0, item=OUTPUT[0] | {"summary": []}),
    _delta("reasoning_summary_text", 0, "because"),
    _delta("reasoning_summary_text", 0, " so"),
    _delta("output_text", 1, "héllo "),
    _delta("output_text", 1, "wörld\n"),
    _delta("refusal", 1, "no"),
    _event("response.output_text.done", output_index=1, text="héllo wörld\n"),
    _event("response.output_item.added", output_index=2, item=OUTPUT[2] | {"arguments": ""}),
    _delta("function_call_arguments", 2, '{"a":'),
    _delta("function_call_arguments", 2, "1}"),
    _event("response.output_item.added", output_index=3, item=OUTPUT[3] | {"input": ""}),
    _delta("custom_tool_call_input", 3, "x y"),
    _event("response.output_item.done", output_index=3, item=OUTPUT[3]),
    _event("response.completed", response=DONE),
]
TEXTS = sorted(["because so", "héllo wörld\n", "no", "ls", '{"a":1}', "run", "x y"])


def _write(events: list[dict[str, object]], end: bytes = b"\n") -> bytes:
    kinds = (str(event["type"]).encode() for event in events)
    return b"".join(
        b"event: " + kind + end + b"data: " + orjson.dumps(event) + end + end
        for kind, event in zip(kinds, events, strict=True)
    )


def _read(*chunks: bytes, is_stream: bool = True) -> tuple[Usage | None, list[str]]:
    """The usage, and each text that is counted."""
    tap = Tap.of(RESPONSES, is_stream=is_stream)
    for chunk in chunks:
        tap.feed(chunk)
    tap.finish()
    texts: list[str] = []
    tap.count_completion(lambda text: len(texts.append(text) or text))
    assert tap.text_chars == sum(map(len, texts))
    return tap.usage, sorted(texts)


@given(st.sampled_from([b"\n", b"\r\n"]), st.lists(st.integers(0, 4000), max_size=30).map(sorted))
def test_usage_and_texts_are_found_however_the_stream_is_cut(end: bytes, cuts: list[int]) -> None:
    """Each text counts once, although the last event repeats all of them."""
    body = _write(EVENTS, end)
    places = [0, *(min(cut, len(body)) for cut in cuts), len(body)]
    assert _read(*(body[start:stop] for start, stop in pairwise(places))) == (Usage(70, 30, 64, 20, 0), TEXTS)


def test_a_response_in_one_piece_is_read() -> None:
    usage, texts = _read(orjson.dumps(DONE), is_stream=False)
    assert (usage, texts) == (Usage(70, 30, 64, 20, 0), TEXTS)


@pytest.mark.parametrize("end", ["response.completed", "response.incomplete", "response.failed"])
def test_each_end_of_a_stream_reports_the_usage(end: str) -> None:
    """If it has none, what was known stays."""
    assert _read(_write([_event(end, response=DONE)]))[0] == Usage(70, 30, 64, 20, 0)
    assert _read(_write([EVENTS[-1], _event(end, response=RESPONSE)]))[0] == Usage(70, 30, 64, 20, 0)
    assert _read(_write([_event(end)]))[0] is None


def test_reasoning_that_was_not_sent_is_told_apart() -> None:
    tap = Tap.of(RESPONSES, is_stream=True)
    tap.feed(_write([_delta("output_text", 0, "hello"), EVENTS[-1]]))
    tap.finish()
    assert tap.find_sent_tokens(30) == 10


@given(odd_objects("type", "delta", "response", "item", "output", "usage", "output_index", "error", "code", "message"))
def test_nothing_is_raised_on_odd_json(value: object) -> None:
    data = dump(value)
    _read(b"data: " + data + b"\n\n")
    _read(data, is_stream=False)
    RESPONSES.read_refusal(200, data)
    RESPONSES.hold_first_event(keeps_all=False).feed(b"data: " + data + b"\n\n")
    RESPONSES.read_refusal(400, data)
    RESPONSES.write_event(200, data)
    RESPONSES.write_event(500, data)


EXCEEDED = {
    "type": "invalid_request_error",
    "code": "context_length_exceeded",
    "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "param": "input",
}
FAILED = RESPONSE | {"status": "failed", "error": {"code": EXCEEDED["code"], "message": EXCEEDED["message"]}}
REFUSALS = [
    _event("error", error=EXCEEDED),
    _event("error", code=EXCEEDED["code"], message=EXCEEDED["message"], param="input"),
    _event("response.failed", response=FAILED | {"instructions": "Say: response.output_text.delta"}),
    {"error": EXCEEDED},
    {"error": EXCEEDED["message"]},
    FAILED,
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_for_length_is_recognised_in_a_stream(refusal: dict[str, object]) -> None:
    """In each form that OpenAI's API and its imitations use."""
    overflow = RESPONSES.read_refusal(200, orjson.dumps(refusal))
    assert overflow.kind is Kind.PROMPT


@pytest.mark.parametrize(
    "answer",
    [
        *EVENTS,
        DONE,
        _event("error", error={"code": "rate_limit_exceeded", "message": "Too many requests"}),
        _event("response.failed", response=RESPONSE | {"error": {"code": "server_error", "message": "Sorry"}}),
        RESPONSE | {"instructions": EXCEEDED["message"], "status": "completed"},
        _event("response.completed", response=RESPONSE | {"message": EXCEEDED["message"]}),
        [EXCEEDED],
        7,
    ],
)
def test_nothing_else_is_a_refusal_for_length(answer: object) -> None:
    """A text of the client that a response repeats is not the server's."""
    assert RESPONSES.read_refusal(200, orjson.dumps(answer)) is None


def test_a_refusal_with_a_status_is_read_as_in_chat() -> None:
    overflow = RESPONSES.read_refusal(400, orjson.dumps({"error": EXCEEDED}))
    assert overflow.kind is Kind.PROMPT
    assert RESPONSES.read_refusal(429, orjson.dumps({"error": EXCEEDED})) is None


@pytest.mark.parametrize("refusal", REFUSALS[:3])
@pytest.mark.parametrize("keeps_all", [True, False])
def test_a_refusal_behind_the_greetings_is_held(refusal: dict[str, object], *, keeps_all: bool) -> None:
    """OpenAI's API says that the request arrived before it refuses it. Comments pass."""
    first, free = RESPONSES.hold_first_event(keeps_all=keeps_all), b""
    stream = _write(GREETING[:1]) + b": ping\n\n" + _write(GREETING[1:]) + b": ping\n\n" + _write([refusal])
    for at in range(len(stream)):
        assert not first.is_done
        free += first.feed(stream[at : at + 1])
    assert first.is_done
    assert first.data is not None
    assert RESPONSES.read_refusal(200, first.data) is not None
    assert free == (b"" if keeps_all else b": ping\n\n" * 2)
    kept = stream if keeps_all else stream.replace(b": ping\n\n", b"")
    assert bytes(first.held) == kept


def test_a_good_stream_is_held_no_longer_than_to_its_first_content() -> None:
    """An item that is empty so far is none: gateways open one before the upstream has read the prompt."""
    part = {"type": "output_text", "text": "", "annotations": []}
    empty = [
        _event("response.output_item.added", output_index=0, item={"type": "message", "content": []}),
        _event("response.output_item.added", output_index=0, item={"type": "message", "content": None}),
        _event("response.content_part.added", output_index=0, content_index=0, part=part),
        _event("response.reasoning_summary_part.added", output_index=0, part={"type": "summary_text", "text": ""}),
        EVENTS[2],
    ]
    for event in [*EVENTS[9:10], _event("response.content_part.added", part=part | {"text": "x"})]:
        first = RESPONSES.hold_first_event(keeps_all=False)
        assert first.feed(_write([*GREETING, *empty])) == b""
        assert not first.is_done
        _check_held([*GREETING, *empty], event)
    for item in ({"type": "web_search_call"}, {"type": []}, 7):
        _check_held(GREETING, EVENTS[9] | {"item": item})


def _check_held(silent: list[dict[str, object]], event: dict[str, object]) -> None:
    first = RESPONSES.hold_first_event(keeps_all=False)
    first.feed(_write(silent))
    item = _write([event]).partition(b"\n\n")[0] + b"\n"
    first.feed(item)
    assert (first.is_done, first.data) == (True, None)
    assert bytes(first.held) == _write(silent) + item


def test_a_long_greeting_is_still_a_greeting() -> None:
    """It repeats the instructions and the tools."""
    first = RESPONSES.hold_first_event(keeps_all=False)
    first.feed(_write([_event("response.created", response=RESPONSE | {"instructions": "x" * 200_000})]))
    assert not first.is_done
    first.feed(_write([_event("response.created", response=RESPONSE | {"instructions": "x" * 400_000})]))
    assert (first.is_done, first.data) == (True, None)


def test_a_stream_that_ends_after_its_greeting_is_no_refusal() -> None:
    first = RESPONSES.hold_first_event(keeps_all=False)
    first.feed(_write(GREETING))
    first.finish()
    assert (first.is_done, first.data) == (True, None)
    assert bytes(first.held) == _write(GREETING)


def test_an_event_with_an_output_of_its_own_is_no_response() -> None:
    """A result of a tool, and what a server says of a program; the answer is what comes at the end."""
    said = {"type": "message", "content": [{"type": "output_text", "text": "Nine metres."}]}
    end = {"output": [said], "usage": {"input_tokens": 5}}
    end_event = _event("response.completed", response=end)
    for output in ("a text", [{"type": "message", "content": []}], {"a": 1}, 7):
        event = _event("response.program_output.done", output=output)
        assert join([orjson.dumps(one) for one in (event, end_event)]) == join([orjson.dumps(end)])
        assert join([orjson.dumps(one) for one in (end_event, event)]).text == "Nine metres."
        with pytest.raises(UndecodableError):
            join([orjson.dumps(event)])
