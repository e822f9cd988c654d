"""Writes errors, and answers in place of a stream.

Law: an error in a stream is two events, as OpenAI's API sends them: `error` for SDKs, and `response.failed` for Codex.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
import orjson

from proxy.wire.answers.sse import write_event
from proxy.wire.codec import PROMPT_TOO_LONG, ErrorText
from proxy.wire.json.decode import DECODE_ERRORS, try_decode
from proxy.wire.responses.answer import find_error

MAX_REASON_BYTES = 2000
"""Part of an error in another form than OpenAI's that is quoted in the events. Chosen: as MAX_TEXT_CHARS in
overflow/classify.py."""


class _Response(msgspec.Struct):
    output: list[msgspec.Raw] | None = None
    status: str | None = None


def write_error(error: ErrorText, *, as_event: bool) -> bytes:
    """An error in OpenAI's form, as a body or as the events that end a stream."""
    param = "input" if error.code == PROMPT_TOO_LONG else error.param
    said = {"message": error.message, "type": error.type, "param": param, "code": error.code, **error.more}
    return _write_failure(said) if as_event else orjson.dumps({"error": said})


def write_answer_event(status: int, body: bytes) -> bytes:
    """A non-stream response as events: its items and its end, or its error. A body in another form names the status."""
    error = find_error(try_decode(body))
    if error is not None:
        code = error.get("code") or error.get("type") or status
        return _write_failure({"type": "upstream_error", "param": None, "message": "", **error, "code": str(code)})
    if status == 200:
        with suppress(*DECODE_ERRORS):
            response = msgspec.json.decode(body, type=_Response)
            return _write_events(_list_events(response, body))
    reason = body[:MAX_REASON_BYTES].decode("utf-8", "replace").strip() or "no reason given"
    return write_error(ErrorText(f"status {status}: {reason}", str(status), "upstream_error"), as_event=True)


def _list_events(response: _Response, body: bytes) -> Iterable[dict[str, Any]]:
    for index, item in enumerate(response.output or ()):
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    end = "incomplete" if response.status == "incomplete" else "completed"
    yield {"type": f"response.{end}", "response": msgspec.Raw(body)}


def _write_failure(error: dict[str, Any]) -> bytes:
    short = {name: error.get(name) for name in ("code", "message")}
    response = {"id": "resp_trimtab", "object": "response", "created_at": 0, "status": "failed", "error": short}
    response |= {"incomplete_details": None, "output": [], "usage": None}
    return _write_events([{"type": "error", "error": error}, {"type": "response.failed", "response": response}])


def _write_events(events: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(
        b"event: %b\n" % event["type"].encode()
        + write_event(msgspec.json.encode({"type": event["type"], "sequence_number": number, **event}))
        for number, event in enumerate(events)
    )
