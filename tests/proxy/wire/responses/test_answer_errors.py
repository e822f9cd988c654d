"""Writing errors, and answers in place of a stream."""

from typing import Any

import orjson
import pytest

from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, ErrorText
from trimtab.proxy.wire.responses.codec import RESPONSES

ERROR = ErrorText("The prompt is too long.", PROMPT_TOO_LONG)
SAID = {
    "message": "The prompt is too long.",
    "type": "invalid_request_error",
    "param": "input",
    "code": "context_length_exceeded",
}


def _read(stream: bytes) -> list[tuple[str, Any]]:
    """The name and the data of each event."""
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
