"""Reading a response."""

from typing import Any

import orjson
import pytest

from trimtab.proxy.compaction.caches import Caches
from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, ErrorText, Question
from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.overflow import Kind
from trimtab.proxy.wire.responses.answer import NOTE, join
from trimtab.proxy.wire.responses.codec import RESPONSES
from trimtab.proxy.wire.transcript.body import UndecodableError

RESPONSE = {"id": "resp_1", "object": "response", "status": "in_progress", "error": None, "output": [], "usage": None}


def _event(kind: str, **members: object) -> dict[str, object]:
    return {"type": kind, "sequence_number": 1, **members}


def _write(events: list[dict[str, object]], end: bytes = b"\n") -> bytes:
    kinds = (str(event["type"]).encode() for event in events)
    return b"".join(
        b"event: " + kind + end + b"data: " + orjson.dumps(event) + end + end
        for kind, event in zip(kinds, events, strict=True)
    )


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
        _event("error", error={"code": "rate_limit_exceeded", "message": "Too many requests"}),
        _event("response.failed", response=RESPONSE | {"error": {"code": "server_error", "message": "Sorry"}}),
        RESPONSE | {"instructions": EXCEEDED["message"], "status": "completed"},
        7,
    ],
)
def test_nothing_else_is_a_refusal_for_length(answer: object) -> None:
    """A text of the client that a response repeats is not the server's."""
    assert RESPONSES.read_refusal(200, orjson.dumps(answer)) is None


def test_a_long_greeting_is_still_a_greeting() -> None:
    """It repeats the instructions and the tools."""
    first = RESPONSES.hold_first_event(keeps_all=False)
    first.feed(_write([_event("response.created", response=RESPONSE | {"instructions": "x" * 200_000})]))
    assert not first.is_done
    first.feed(_write([_event("response.created", response=RESPONSE | {"instructions": "x" * 400_000})]))
    assert (first.is_done, first.data) == (True, None)


@pytest.mark.parametrize("end", ["response.completed", "response.incomplete", "response.failed"])
def test_each_end_of_a_stream_reports_the_usage(end: str) -> None:
    """If it has none, what was known stays."""
    told = _event("response.completed", response=RESPONSE | {"usage": {"input_tokens": 70, "output_tokens": 30}})
    for events in ([told | {"type": end}], [told, _event(end, response=RESPONSE)]):
        tap = Tap.of(RESPONSES, is_stream=True)
        tap.feed(_write(events))
        tap.finish()
        assert tap.usage == Usage(70, 30)


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


# Writing errors, and answers in place of a stream.

ERROR = ErrorText("The prompt is too long.", PROMPT_TOO_LONG)
SAID = {
    "message": "The prompt is too long.",
    "type": "invalid_request_error",
    "param": "input",
    "code": "context_length_exceeded",
}


def _read(stream: bytes) -> list[tuple[str, Any]]:
    events = [event.split(b"\n") for event in stream.split(b"\n\n") if event]
    return [
        (name.decode().removeprefix("event: "), orjson.loads(data.removeprefix(b"data: "))) for name, data in events
    ]


def _check(stream: bytes) -> list[dict[str, Any]]:
    """The data of each event. Its name is its type, and the events are numbered."""
    events = _read(stream)
    assert [name for name, _ in events] == [data["type"] for _, data in events]
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    return [data for _, data in events]


def test_an_error_has_openais_form() -> None:
    assert orjson.loads(RESPONSES.write_error(ERROR, as_event=False)) == {"error": SAID}
    other = ErrorText("Busy.", "overloaded", "trimtab_error", "model")
    assert orjson.loads(RESPONSES.write_error(other, as_event=False))["error"]["param"] == "model"


def test_an_error_in_a_stream_is_told_to_sdks_and_to_codex() -> None:
    """OpenAI's SDKs raise on the member `error`; Codex reads `response.failed` and nothing else."""
    error, failed = _check(RESPONSES.write_error(ERROR, as_event=True))
    assert (error["type"], error["error"]) == ("error", SAID)
    assert failed["type"] == "response.failed"
    assert failed["response"] == {
        "id": "resp_trimtab",
        "object": "response",
        "created_at": 0,
        "status": "failed",
        "error": {"code": SAID["code"], "message": SAID["message"]},
        "incomplete_details": None,
        "output": [],
        "usage": None,
    }
    for event in (error, failed):
        assert RESPONSES.read_refusal(200, orjson.dumps(event)) is not None


@pytest.mark.parametrize(
    ("status", "end"), [("completed", "completed"), ("incomplete", "incomplete"), (None, "completed")]
)
def test_an_answer_in_one_piece_becomes_a_stream(status: str | None, end: str) -> None:
    """Codex takes its items from their own events."""
    body = {"id": "resp_1", "error": None, "output": [{"type": "message"}, {"type": "reasoning"}], "n": 1.50}
    body |= {} if status is None else {"status": status}
    first, second, last = _check(RESPONSES.write_event(200, orjson.dumps(body, option=orjson.OPT_INDENT_2)))
    assert [first["type"], second["type"], last["type"]] == ["response.output_item.done"] * 2 + [f"response.{end}"]
    assert [(event["output_index"], event["item"]) for event in (first, second)] == list(enumerate(body["output"]))
    assert last["response"] == body


@pytest.mark.parametrize(
    ("status", "body", "code", "message"),
    [
        (
            429,
            {"error": {"message": "Slow down.", "type": "rate", "code": "rate_limit", "param": None}},
            "rate_limit",
            "Slow down.",
        ),
        (500, {"error": {"message": "Oops.", "type": "server_error", "code": None}}, "server_error", "Oops."),
        (200, {"error": {"message": "Oops.", "code": 7}}, "7", "Oops."),
        (502, {"detail": "x"}, "502", 'status 502: {"detail":"x"}'),
    ],
)
def test_an_error_in_one_piece_becomes_one_in_a_stream(status: int, body: Any, code: str, message: str) -> None:
    error, failed = _check(RESPONSES.write_event(status, orjson.dumps(body)))
    assert (error["error"]["code"], error["error"]["message"]) == (code, message)
    assert failed["response"]["error"] == {"code": code, "message": message}


# OpenAI's compaction: what is asked, and which answers have a note.

PACKED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk"}
NOTE_SAID = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}
USAGE = {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 90}}
INPUT: list[Any] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def _note_read(*items: Any, **more: Any) -> Any:
    return NOTE.read(orjson.dumps({"object": "response.compaction", "output": list(items), "usage": USAGE, **more}))


def _ask(items: Any = INPUT, **more: Any) -> dict[str, Any] | None:
    request = RESPONSES.read(orjson.dumps({"model": "gpt", "input": items, **more}))
    prefix = RESPONSES.decode(request, Counting(len, Caches().known))
    asked = RESPONSES.ask_provider(request, prefix, Question("gpt", 400, 0.2), instructions="Keep names.")
    return None if asked is None else orjson.loads(asked)


def test_only_what_the_endpoint_knows_is_sent() -> None:
    """Another member would be refused."""
    kept = {"instructions": "Be brief.", "prompt_cache_key": "k", "service_tier": "flex"}
    more: dict[str, Any] = {"tools": [], "store": False, "reasoning": {"effort": "low"}, "stream": True, "metadata": {}}
    assert _ask(**kept, **more) == {"model": "gpt", "input": INPUT, **kept}
    assert NOTE.path == "/compact"


@pytest.mark.parametrize(
    "more",
    [
        {"previous_response_id": "resp_1"},
        {"text": {"format": {"type": "json_schema"}}},
        {"items": [PACKED, *INPUT]},
    ],
)
def test_it_is_not_asked_without_the_whole_conversation(more: dict[str, Any]) -> None:
    """Or if the client compacts itself."""
    assert _ask(**more) is None


def test_messages_and_one_encrypted_item_are_the_note() -> None:
    """The system's messages are left out, since the client's own are forwarded. The rest has its own bytes."""
    system, developer = {**NOTE_SAID, "role": "system"}, {"role": "developer", "content": "d"}
    said = {"role": "assistant", "content": "b"}
    found = _note_read(system, NOTE_SAID, developer, said, PACKED)
    assert found.note == b",".join(map(orjson.dumps, (NOTE_SAID, said, PACKED)))
    assert found.text == ""
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.cached_tokens) == (100, 7, 90)


@pytest.mark.parametrize(
    "items",
    [
        [],
        [NOTE_SAID],
        [{**PACKED, "encrypted_content": ""}],
        [{"type": "compaction"}],
        [NOTE_SAID, {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}, PACKED],
        [{"type": "function_call_output", "call_id": "c", "output": "o"}, PACKED],
        [{**NOTE_SAID, "role": "tool"}, PACKED],
        [{"role": ["user"]}, PACKED],
    ],
)
def test_anything_else_is_no_note(items: list[Any]) -> None:
    """No item or several, an empty one, and what needs other items."""
    found = _note_read(*items)
    assert (found.note, found.text) == (b"", "")


def test_a_models_answer_or_what_is_not_utf_8_is_no_note() -> None:
    """A server that takes any path under its own may answer as for a response. A note is stored and forwarded."""
    found = _note_read(NOTE_SAID, PACKED, object="response")
    assert found.note == b""
    assert found.text
    answer = orjson.dumps({"object": "response.compaction", "output": [{**NOTE_SAID, "content": "@"}, PACKED]})
    with pytest.raises(UndecodableError):
        NOTE.read(answer.replace(b"@", b"\xff"))


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"output":"x"}', b"data: {}\n\ndata: {}\n\n"])
def test_what_cannot_be_read_is_said_to_be_so(answer: bytes) -> None:
    with pytest.raises(UndecodableError):
        NOTE.read(answer)


@pytest.mark.parametrize("number", [0, 2])
def test_a_stream_has_no_note(number: int) -> None:
    """The endpoint answers with one object."""
    body = orjson.dumps({"object": "response.compaction", "output": [NOTE_SAID, PACKED], "usage": USAGE})
    with pytest.raises(UndecodableError):
        NOTE.read(b"data: " + b"\n\ndata: ".join([body] * number or [b"[DONE]"]) + b"\n\n")
