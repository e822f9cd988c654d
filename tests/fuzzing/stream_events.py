"""Writes the streams and the whole responses of Responses and Messages, intact, odd or damaged."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from fuzzing.choices import Choices, dump
from fuzzing.session_bodies import disturb

Wire = dict[str, Any]
USAGES: Sequence[Any] = (
    {"input_tokens": 11, "output_tokens": 3},
    {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 1},
    {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 1, "total_tokens": 10},
    {"output_tokens": 9},
    {"input_tokens": -1},
    {"input_tokens": 10**30},
    {"input_tokens": 1.5, "output_tokens": True},
    None,
    [],
)


def write_responses_event(choices: Choices) -> Wire:
    """An event of a streamed response."""
    place = {"item_id": "i", "output_index": choices.below(3), "content_index": choices.below(2)}
    item = choices.pick(
        (
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": choices.text(20)}]},
            {"type": "function_call", "name": "run", "arguments": choices.text(20), "call_id": "c"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": choices.text(9)}]},
        )
    )
    response = {"id": "r", "status": "completed", "output": [item], "usage": choices.pick(USAGES), "error": None}
    error = {"code": choices.pick(("context_length_exceeded", "server_error", None)), "message": choices.text(4)}
    kind = choices.below(10)
    if kind < 5:
        part = choices.pick(("output_text", "function_call_arguments", "reasoning_summary_text", "refusal", "x"))
        return {"type": f"response.{part}.delta", **place, "delta": choices.text(40)}
    if kind == 5:
        return {"type": f"response.output_item.{choices.pick(('added', 'done'))}", **place, "item": item}
    if kind == 6:
        return {"type": f"response.{choices.pick(('created', 'in_progress', 'queued'))}", "response": response}
    if kind == 7:
        return {"type": "error", **choices.pick((error, {"error": error}))}
    ended = choices.pick(("completed", "incomplete", "failed"))
    return {"type": f"response.{ended}", "response": response | ({"error": error} if ended == "failed" else {})}


def write_messages_event(choices: Choices) -> Wire:
    """An event of a streamed message."""
    kind, index = choices.below(10), choices.below(3)
    if kind < 4:
        deltas = (
            {"type": "text_delta", "text": choices.text(40)},
            {"type": "input_json_delta", "partial_json": choices.text(20)},
            {"type": "thinking_delta", "thinking": choices.text(20)},
            {"type": "signature_delta", "signature": "QUFB"},
        )
        return {"type": "content_block_delta", "index": index, "delta": choices.pick(deltas)}
    if kind == 4:
        blocks = (
            {"type": "text", "text": choices.text(9)},
            {"type": "tool_use", "id": "c", "name": "run", "input": {}},
            {"type": "thinking", "thinking": choices.text(9), "signature": ""},
        )
        return {"type": "content_block_start", "index": index, "content_block": choices.pick(blocks)}
    if kind == 5:
        message = {"id": "m", "role": "assistant", "content": [], "usage": choices.pick(USAGES)}
        return {"type": "message_start", "message": message}
    if kind == 6:
        ended = choices.pick(("end_turn", "tool_use", "max_tokens", "model_context_window_exceeded", None))
        return {"type": "message_delta", "delta": {"stop_reason": ended}, "usage": choices.pick(USAGES)}
    if kind == 7:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": choices.text(4)}}
    return {"type": choices.pick(("ping", "message_stop", "content_block_stop")), "index": index}


def write_stream(choices: Choices, write_event: Callable[[Choices], Wire], keys: Sequence[str]) -> bytes:
    """A stream, or one event as a whole body."""
    kind = choices.below(6)
    if kind == 1:
        return choices.rest()
    if kind == 2:
        return dump(_make_odd(choices, write_event(choices), keys), choices)
    body = b"".join(_write_event(choices, write_event, keys) for _ in range(choices.below(14)))
    return choices.mutate(body) if kind == 3 else body


def _make_odd(choices: Choices, event: Wire, keys: Sequence[str]) -> Wire:
    """The event, sometimes with odd values in it."""
    if not choices.happens(48):
        return event
    odd = deepcopy(event)
    disturb(choices, odd, keys)
    return odd


def _write_event(choices: Choices, write_event: Callable[[Choices], Wire], keys: Sequence[str]) -> bytes:
    """An event with any line ending, with or without its name, on one line or several; or bytes that are no event."""
    end = choices.pick((b"\n", b"\n", b"\r\n", b"\r"))
    if choices.happens(20):
        return choices.pick((b": ping", b"id: 1", b"retry: 1", b"data", b"data:", b"", b"data: [DONE]")) + end
    if choices.happens(12):
        return choices.take(choices.below(40)) + end
    event = _make_odd(choices, write_event(choices), keys)
    data = dump(event, choices)
    lines = [data[:20], data[20:]] if choices.happens(12) else data.split(b"\n")
    name = b"" if choices.happens(64) else b"event: " + dump(event.get("type"), choices).strip(b'"') + end
    written = name + b"".join(b"data:" + choices.pick((b" ", b"")) + line + end for line in lines)
    return written + (b"" if choices.happens(24) else end)
