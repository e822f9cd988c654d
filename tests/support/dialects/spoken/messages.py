"""Anthropic's Messages, as clients and servers write them."""

from collections.abc import Iterator
from typing import Any

import orjson
from support.dialects import messages_checker
from support.dialects.spoken.chat import refuse_as_llama
from support.dialects.spoken.dialect import Dialect, Refusal, Wire, join_parts, read_sse, write_sse
from support.dialects.to_messages import to_messages

MAX_TOKENS = 500
"""The completion limit, which each body must have. It is less than what any test reserves."""


def _convert(session: Wire) -> Wire:
    return to_messages(session, model="m") | {"max_tokens": MAX_TOKENS}


def _read(body: Wire) -> list[Wire]:
    told = join_parts(_read_parts(body.get("system") or []))
    messages: list[Wire] = [{"role": "system", "content": told}] if told else []
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["type"] == "tool_result":
                said = join_parts(_read_parts(block.get("content") or ""))
                messages.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": said})
        calls = [_read_call(block) for block in blocks if block["type"] == "tool_use"]
        parts = list(_read_parts(blocks))
        if parts or calls:
            said = {"role": message["role"], "content": join_parts(parts)}
            messages.append({**said, "tool_calls": calls} if calls else said)
    return messages


def _read_call(block: Wire) -> Wire:
    function = {"name": block["name"], "arguments": orjson.dumps(block["input"]).decode()}
    return {"id": block["id"], "type": "function", "function": function}


def _read_parts(content: Any) -> Iterator[Wire]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for part in content:
        if part["type"] == "image":
            source = part["source"]
            url = source.get("url") or f"data:{source['media_type']};base64,{source['data']}"
            yield {"type": "image_url", "image_url": {"url": url}}
        elif part["type"] == "text":
            yield {"type": "text", "text": part["text"]}


def _make_message(text: str | None, prompt_tokens: int = 11, completion_tokens: int = 3) -> Wire:
    """A message. Without a text it has only begun."""
    content = [] if text is None else [{"type": "text", "text": text}]
    message: Wire = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake-model", "content": content}
    message |= {"stop_reason": None if text is None else "end_turn", "stop_sequence": None}
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {**message, "usage": {"input_tokens": prompt_tokens, **cached, "output_tokens": completion_tokens}}


def _write_answer(text: str, prompt_tokens: int | None = None, completion_tokens: int | None = None) -> bytes:
    message = _make_message(text, prompt_tokens or 0, completion_tokens or 0)
    if prompt_tokens is None:
        del message["usage"]
    return orjson.dumps(message)


def _write_event(text: str) -> bytes:
    return write_sse({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})


def _greet() -> bytes:
    return write_sse({"type": "message_start", "message": _make_message(None, completion_tokens=1)})


def _write_events(*texts: str) -> list[bytes]:
    opened = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        _greet(),
        write_sse(opened),
        write_sse({"type": "ping"}),
        *map(_write_event, texts),
        write_sse({"type": "content_block_stop", "index": 0}),
        write_sse({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 3}}),
        write_sse({"type": "message_stop"}),
    ]


def _read_text(answer: bytes, *, is_stream: bool) -> str:
    if is_stream:
        events = read_sse(answer)
        return "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    return "".join(block["text"] for block in orjson.loads(answer)["content"] if block["type"] == "text")


def _own_type(code: str) -> str:
    return {"upstream_timeout": "timeout_error"}.get(code, "api_error")


def _write_error(message: str) -> Wire:
    return {"type": "error", "error": {"type": "invalid_request_error", "message": message}, "request_id": "req_1"}


def _refuse(tokens: int, window: int) -> bytes:
    return orjson.dumps(_write_error(f"prompt is too long: {tokens} tokens > {window} maximum"))


def _refuse_sum(tokens: int, window: int) -> bytes:
    message = (
        f"input length and `max_tokens` exceed context limit: {tokens} + {MAX_TOKENS} > {window}, "
        "decrease input length or `max_tokens` and try again"
    )
    return orjson.dumps(_write_error(message))


def _refuse_in_event(tokens: int, window: int) -> bytes:
    return write_sse(orjson.loads(_refuse(tokens, window)))


def _refuse_behind_start(tokens: int, window: int) -> bytes:
    return write_sse({"type": "ping"}) + _greet() + _refuse_in_event(tokens, window)


def _end_at_window(tokens: int, _window: int) -> bytes:
    message = _make_message("", tokens, 0) | {"content": [], "stop_reason": "model_context_window_exceeded"}
    return orjson.dumps(message)


def _end_stream_at_window(_tokens: int, _window: int) -> bytes:
    ended = {"stop_reason": "model_context_window_exceeded", "stop_sequence": None}
    events = ({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 0}}, {"type": "message_stop"})
    return _greet() + b"".join(map(write_sse, events))


MESSAGES = Dialect(
    name="messages",
    path="/v1/messages",
    transcript="messages",
    completion_limit="max_tokens",
    convert=_convert,
    read=_read,
    write_answer=_write_answer,
    write_event=_write_event,
    write_events=_write_events,
    read_text=_read_text,
    own_type=_own_type,
    refusals=(
        Refusal("anthropic", _refuse),
        Refusal("anthropic, with max_tokens", _refuse_sum),
        Refusal("llama.cpp", refuse_as_llama),
        Refusal("anthropic, in a stream", _refuse_in_event, 200, is_stream=True),
        Refusal("anthropic, behind message_start", _refuse_behind_start, 200, is_stream=True),
        Refusal("anthropic, by its stop_reason", _end_at_window, 200, told=False),
        Refusal("anthropic, by its stop_reason in a stream", _end_stream_at_window, 200, is_stream=True, told=False),
    ),
    check_request=messages_checker.check_request,
)
