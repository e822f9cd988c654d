"""Responses, as clients and servers write them."""

from collections.abc import Iterator
from typing import Any

import orjson
from support.dialects import responses_checker
from support.dialects.spoken.chat import refuse_as_llama
from support.dialects.spoken.dialect import Dialect, Refusal, Wire, join_parts, read_sse, write_sse
from support.dialects.to_responses import to_responses

_TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."


def _convert(session: Wire) -> Wire:
    return to_responses(session, model="m")


def _read(body: Wire) -> list[Wire]:
    told = body.get("instructions")
    messages: list[Wire] = [{"role": "system", "content": told}] if told else []
    by_model = False
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "message":
            messages.append({"role": item["role"], "content": join_parts(_read_parts(item["content"]))})
            by_model = item["role"] == "assistant"
        elif kind == "function_call":
            if not by_model:
                messages.append({"role": "assistant", "content": None})
            messages[-1].setdefault("tool_calls", []).append(_read_call(item))
            by_model = True
        elif kind == "function_call_output":
            content = join_parts(_read_parts(item["output"]))
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
            by_model = False
    return messages


def _read_call(item: Wire) -> Wire:
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _read_parts(content: Any) -> Iterator[Wire]:
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    for part in content:
        if part["type"] == "input_image":
            yield {"type": "image_url", "image_url": {"url": part["image_url"], "detail": part["detail"]}}
        else:
            yield {"type": "text", "text": part["text"]}


def _make_item(text: str) -> Wire:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def _make_response(text: str | None, prompt_tokens: int | None = None, completion_tokens: int | None = None) -> Wire:
    """A response. Without a text it is in progress."""
    status = "in_progress" if text is None else "completed"
    response: Wire = {"id": "resp_1", "object": "response", "created_at": 1, "status": status, "error": None}
    response |= {"model": "fake-model", "output": [] if text is None else [_make_item(text)], "usage": None}
    if prompt_tokens is not None and completion_tokens is not None:
        tokens = {"input_tokens": prompt_tokens, "input_tokens_details": {"cached_tokens": 0}}
        tokens |= {"output_tokens": completion_tokens, "output_tokens_details": {"reasoning_tokens": 0}}
        response["usage"] = {**tokens, "total_tokens": prompt_tokens + completion_tokens}
    return response


def _write_answer(text: str, prompt_tokens: int | None = None, completion_tokens: int | None = None) -> bytes:
    return orjson.dumps(_make_response(text, prompt_tokens, completion_tokens))


def _write_event(text: str) -> bytes:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
    return write_sse({"type": "response.output_text.delta", "sequence_number": 4, **place, "delta": text})


def _open(text: str | None) -> list[bytes]:
    """The events before the text or after it."""
    told = text or ""
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    item = {**_make_item(told), "status": "in_progress", "content": []} if text is None else _make_item(told)
    part = {"type": "output_text", "text": told, "annotations": []}
    done = "added" if text is None else "done"
    events = [
        {"type": f"response.output_item.{done}", "output_index": 0, "item": item},
        {"type": f"response.content_part.{done}", **place, "part": part},
    ]
    return [write_sse({"sequence_number": 1, **event}) for event in (events if text is None else reversed(events))]


def _greet() -> list[bytes]:
    kinds = ("response.created", "response.in_progress")
    return [
        write_sse({"type": kind, "sequence_number": number, "response": _make_response(None)})
        for number, kind in enumerate(kinds)
    ]


def _write_events(*texts: str) -> list[bytes]:
    whole = "".join(texts)
    end = {"type": "response.completed", "sequence_number": 9, "response": _make_response(whole, 11, 3)}
    return [*_greet(), *_open(None), *map(_write_event, texts), *_open(whole), write_sse(end)]


def _read_text(answer: bytes, *, is_stream: bool) -> str:
    if is_stream:
        events = read_sse(answer)
        return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    parts = [part for item in orjson.loads(answer)["output"] for part in item.get("content") or ()]
    return "".join(part["text"] for part in parts if part["type"] == "output_text")


def _own_type(_code: str) -> str:
    return "trimtab_error"


def _refuse(_tokens: int, _window: int) -> bytes:
    said = {"type": "invalid_request_error", "param": "input", "code": "context_length_exceeded"}
    return orjson.dumps({"error": {"message": _TOO_LONG, **said}})


def _refuse_in_event(tokens: int, window: int) -> bytes:
    error = orjson.loads(_refuse(tokens, window))["error"]
    return b"".join((*_greet(), write_sse({"type": "error", "sequence_number": 2, "error": error})))


def _fail(_tokens: int, _window: int) -> bytes:
    response = _make_response(None) | {"status": "failed"}
    response["error"] = {"code": "context_length_exceeded", "message": _TOO_LONG}
    return b"".join((*_greet(), write_sse({"type": "response.failed", "sequence_number": 2, "response": response})))


def _refuse_with_numbers(tokens: int, window: int) -> bytes:
    message = (
        f"This model's maximum context length is {window} tokens. However, your request has {tokens} input tokens."
    )
    said = {"type": "BadRequestError", "param": "input", "code": 400}
    return orjson.dumps({"error": {"message": message, **said}})


RESPONSES = Dialect(
    name="responses",
    path="/v1/responses",
    transcript="input",
    completion_limit="max_output_tokens",
    convert=_convert,
    read=_read,
    write_answer=_write_answer,
    write_event=_write_event,
    write_events=_write_events,
    read_text=_read_text,
    own_type=_own_type,
    refusals=(
        Refusal("openai", _refuse, told=False),
        Refusal("vllm", _refuse_with_numbers),
        Refusal("llama.cpp", refuse_as_llama),
        Refusal("openai, in a stream", _refuse_in_event, 200, is_stream=True, told=False),
        Refusal("openai, a failed response", _fail, 200, is_stream=True, told=False),
    ),
    check_request=responses_checker.check_request,
)
