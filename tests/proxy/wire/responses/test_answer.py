"""Reading a response."""

import orjson
import pytest

from trimtab.proxy.wire.overflow import Kind
from trimtab.proxy.wire.responses.answer import join
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
