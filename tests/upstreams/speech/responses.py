"""A model that speaks Responses: whole, or with the events of a stream.

Sources: openai-python, `types/responses/response*.py`; the errors in a stream as users of the API reported them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from aiohttp import web
from support.dialects.seals import is_seal, seal
from upstreams.recording import error
from upstreams.scripted import split_halves
from upstreams.speech.spent import Said, Spent, send_events

Wire = dict[str, Any]

TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."
REASONING_BYTES = 1200


def read_prompt(body: Wire) -> bytes:
    """What the model reads, in a fixed order."""
    return orjson.dumps([body.get("tools"), body.get("instructions"), body.get("input")])


def read_tools(body: Wire) -> list[Wire]:
    """The tools that a request offers, also those in its items and in namespaces."""
    items = body["input"] if isinstance(body.get("input"), list) else []
    listed = [*(body.get("tools") or ())]
    listed += (tool for item in items if item.get("type") == "additional_tools" for tool in item["tools"])
    return [inner for tool in listed for inner in tool.get("tools", (tool,))]


def refuse(problem: str) -> web.Response:
    """The error for an invalid request."""
    return error(400, message=problem, type="invalid_request_error", param="input", code=None)


def refuse_long(_tokens: int, _window: int) -> web.Response:
    """The error for a prompt that is too long. It has no numbers."""
    return error(400, message=TOO_LONG, type="invalid_request_error", param="input", code="context_length_exceeded")


async def refuse_in_stream(request: web.BaseRequest, body: Wire, said: Said) -> web.StreamResponse:
    """The same error as an event, as it comes if the window is checked after the headers were sent."""
    started = make_response(body, said, [], "in_progress")
    fault = {"type": "invalid_request_error", "code": "context_length_exceeded", "message": TOO_LONG, "param": "input"}
    failed = {**started, "status": "failed", "error": {"code": fault["code"], "message": TOO_LONG}}
    events = [
        {"type": "response.created", "response": started},
        {"type": "response.in_progress", "response": started},
        {"type": "error", "error": fault},
        {"type": "response.failed", "response": failed},
    ]
    return await send_events(request, number(events))


async def reply(request: web.BaseRequest, body: Wire, said: Said) -> web.StreamResponse:
    """Send a turn in the form that the request asks for."""
    if not body.get("stream"):
        return web.json_response(finish(body, said))
    return await send_events(request, number(make_events(body, said)))


def finish(body: Wire, said: Said) -> Wire:
    """The finished response."""
    status = "incomplete" if said.turn.is_cut_off else "completed"
    return make_response(body, said, list(make_output(said)), status)


def make_output(said: Said) -> Iterator[Wire]:
    """The items of a turn: reasoning, a message, and the calls."""
    name, turn = said.name, said.turn
    if turn.thought:
        summary = [{"type": "summary_text", "text": turn.thought}]
        sealed = seal(f"reasoning {name} {turn.thought}", REASONING_BYTES)
        yield {"type": "reasoning", "id": f"rs_{name}", "summary": summary, "encrypted_content": sealed}
    if turn.text:
        status = "incomplete" if turn.is_cut_off else "completed"
        content = [{"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}]
        yield {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": status, "content": content}
    for index, call in enumerate(turn.calls):
        key = f"{name}_{index}"
        asked = {"call_id": f"call_{key}", "name": call.name, "status": "completed"}
        if isinstance(call.arguments, str):
            yield {"type": "custom_tool_call", "id": f"ctc_{key}", **asked, "input": call.arguments}
        else:
            arguments = orjson.dumps(call.arguments).decode()
            yield {"type": "function_call", "id": f"fc_{key}", **asked, "arguments": arguments}


ECHOED = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""Members of a response that repeat the request's, and their values without one."""


def make_response(body: Wire, said: Said, output: list[Wire], status: str) -> Wire:
    """A response. It has usage once it is finished."""
    is_finished = status in {"completed", "incomplete"}
    return {
        "id": f"resp_{said.name}",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": body["model"],
        "output": output,
        "usage": make_usage(said.spent) if is_finished else None,
        **{name: body.get(name, value) for name, value in ECHOED.items()},
    }


def make_usage(spent: Spent) -> Wire:
    """The usage of a response. The tokens read from the cache are among those of the input."""
    return {
        "input_tokens": spent.prompt,
        "input_tokens_details": {"cached_tokens": spent.cached, "cache_write_tokens": 0},
        "output_tokens": spent.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": spent.prompt + spent.completion,
    }


def make_events(body: Wire, said: Said) -> Iterator[Wire]:
    """The events of a streamed response, in order."""
    started = make_response(body, said, [], "in_progress")
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    whole = finish(body, said)
    for index, item in enumerate(whole["output"]):
        opened = {"status": "in_progress", **OPENED[item["type"]]}
        yield {"type": "response.output_item.added", "output_index": index, "item": {**item, **opened}}
        yield from make_item_events(item, {"output_index": index, "item_id": item["id"]})
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


OPENED: dict[str, Wire] = {
    "reasoning": {"summary": [], "encrypted_content": ""},
    "message": {"content": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
}
"""What an item is without yet when it is announced."""


def make_item_events(item: Wire, place: Wire) -> Iterator[Wire]:
    """The events between the beginning and the end of an item."""
    if item["type"] == "function_call":
        for half in split_halves(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": half}
        told = {"arguments": item["arguments"], "name": item["name"]}
        yield {"type": "response.function_call_arguments.done", **place, **told}
        return
    if item["type"] == "custom_tool_call":
        for half in split_halves(item["input"]):
            yield {"type": "response.custom_tool_call_input.delta", **place, "delta": half}
        yield {"type": "response.custom_tool_call_input.done", **place, "input": item["input"]}
        return
    is_message = item["type"] == "message"
    kind = "response.output_text" if is_message else "response.reasoning_summary_text"
    bracket = "response.content_part" if is_message else "response.reasoning_summary_part"
    place = {**place, "content_index" if is_message else "summary_index": 0}
    part = item["content" if is_message else "summary"][0]
    extra = {"logprobs": []} if is_message else {}
    yield {"type": f"{bracket}.added", **place, "part": {**part, "text": ""}}
    for half in split_halves(part["text"]):
        yield {"type": f"{kind}.delta", **place, "delta": half, **extra}
    yield {"type": f"{kind}.done", **place, "text": part["text"], **extra}
    yield {"type": f"{bracket}.done", **place, "part": part}


def number(events: Iterable[Wire]) -> Iterator[Wire]:
    """The events with their sequence numbers."""
    yield from ({**event, "sequence_number": rank} for rank, event in enumerate(events))


def check_seals(body: Wire) -> list[str]:
    """Encrypted contents that are not as the provider wrote them."""
    items = body["input"] if isinstance(body.get("input"), list) else []
    return [
        f"The encrypted content for item {item.get('id')} could not be verified."
        for item in items
        if item.get("encrypted_content") is not None and not is_seal(item["encrypted_content"])
    ]
