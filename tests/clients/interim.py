"""A scripted model that answers in the dialect of the path. Stands in until tests/upstreams has one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from support.dialects.seals import seal
from upstreams.recording import Recorded, error, event
from upstreams.scripted import SUMMARY, ScriptedModel, Turn, reply

Event = dict[str, Any]


@dataclass
class DialectModel(ScriptedModel):
    """As `ScriptedModel`, in three dialects."""

    plain: str = "All good."

    async def answer(self, recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        body = recorded.json
        tokens = len(recorded.body) // 4
        if self.window_tokens is not None and tokens > self.window_tokens:
            self.refused.append(recorded)
            return self.refusal(tokens, self.window_tokens)
        self.accepted.append(recorded)
        say = speaker_of(recorded.path)
        if recorded.asks_for_summary:
            return await say(request, body, Turn(SUMMARY), "summary")
        tools = tools_of(body)
        if not tools:
            return await say(request, body, Turn(self.plain), "plain")
        if self.played == len(self.turns):
            return error(400, message="the script is over", type="test", code="script")
        turn = self.turns[self.played]
        self.played += 1
        calls = tuple(self.fit(call, tools) for call in turn.calls)
        return await say(request, body, Turn(turn.text, calls), f"turn{self.played}")


def tools_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools that a request offers, also those in items and in namespaces."""
    listed = list(body.get("tools") or ())
    items = body.get("input") if isinstance(body.get("input"), list) else []
    for item in items:
        if item.get("type") == "additional_tools":
            listed += item["tools"]
    return [inner for tool in listed for inner in tool.get("tools", (tool,))]


def speaker_of(path: str) -> Any:
    bare = path.partition("?")[0].rstrip("/")
    if bare.endswith("/responses"):
        return say_response
    return say_message if bare.endswith("/messages") else reply


def sign(text: str) -> str:  # noqa
    return seal(text)


async def say_response(request: web.BaseRequest, body: dict[str, Any], turn: Turn, name: str) -> web.StreamResponse:
    whole = _response(body, turn, name)
    if not body.get("stream"):
        return web.json_response(whole)
    return await _stream(request, _response_events(whole))


def _response(body: dict[str, Any], turn: Turn, name: str) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if "reasoning.encrypted_content" in (body.get("include") or ()):
        thought = {"id": f"rs_{name}", "type": "reasoning", "summary": [], "encrypted_content": sign(name)}
        output.append(thought)
    part = {"type": "output_text", "text": turn.text, "annotations": []}
    output.append(
        {"id": f"msg_{name}", "type": "message", "status": "completed", "role": "assistant", "content": [part]}
    )
    custom = {tool["name"] for tool in tools_of(body) if tool["type"] == "custom"}
    for index, call in enumerate(turn.calls):
        item = {"status": "completed", "name": call.name, "call_id": f"call_{name}_{index}"}
        if call.name in custom:
            item |= {"id": f"ctc_{name}_{index}", "type": "custom_tool_call", "input": call.arguments["input"]}
        else:
            arguments = orjson.dumps(call.arguments).decode()
            item |= {"id": f"fc_{name}_{index}", "type": "function_call", "arguments": arguments}
        output.append(item)
    counted = len(orjson.dumps(body)) // 4
    usage = {
        "input_tokens": counted,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counted + 7,
    }
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": body["model"],
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "usage": usage,
    }


def _response_events(whole: dict[str, Any]) -> Iterator[Event]:
    number = -1

    def event(kind: str, **more: Any) -> Event:
        nonlocal number
        number += 1
        return {"type": kind, "sequence_number": number} | more

    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for at, item in enumerate(whole["output"]):
        known = {"item_id": item["id"], "output_index": at}
        if item["type"] == "message":
            text = item["content"][0]["text"]
            place = known | {"content_index": 0}
            yield event(
                "response.output_item.added", output_index=at, item=item | {"status": "in_progress", "content": []}
            )
            yield event("response.content_part.added", **place, part=item["content"][0] | {"text": ""})
            for half in (text[: len(text) // 2], text[len(text) // 2 :]):
                yield event("response.output_text.delta", **place, delta=half, logprobs=[])
            yield event("response.output_text.done", **place, text=text, logprobs=[])
            yield event("response.content_part.done", **place, part=item["content"][0])
        elif item["type"] == "function_call":
            told = item["arguments"]
            yield event(
                "response.output_item.added", output_index=at, item=item | {"status": "in_progress", "arguments": ""}
            )
            for half in (told[: len(told) // 2], told[len(told) // 2 :]):
                yield event("response.function_call_arguments.delta", **known, delta=half)
            yield event("response.function_call_arguments.done", **known, arguments=told, name=item["name"])
        elif item["type"] == "custom_tool_call":
            told = item["input"]
            yield event(
                "response.output_item.added", output_index=at, item=item | {"status": "in_progress", "input": ""}
            )
            for half in (told[: len(told) // 2], told[len(told) // 2 :]):
                yield event("response.custom_tool_call_input.delta", **known, delta=half)
            yield event("response.custom_tool_call_input.done", **known, input=told)
        else:
            yield event("response.output_item.added", output_index=at, item=item)
        yield event("response.output_item.done", output_index=at, item=item)
    yield event("response.completed", response=whole)


async def say_message(request: web.BaseRequest, body: dict[str, Any], turn: Turn, name: str) -> web.StreamResponse:
    whole = _message(body, turn, name)
    if not body.get("stream"):
        return web.json_response(whole)
    return await _stream(request, _message_events(whole))


def _message(body: dict[str, Any], turn: Turn, name: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if (body.get("thinking") or {}).get("type") in {"enabled", "adaptive"}:
        content.append({"type": "thinking", "thinking": f"I think of {name}.", "signature": sign(name)})
    content.append({"type": "text", "text": turn.text})
    for index, call in enumerate(turn.calls):
        content.append({"type": "tool_use", "id": f"toolu_{name}_{index}", "name": call.name, "input": call.arguments})
    usage = {"input_tokens": len(orjson.dumps(body)) // 4, "cache_creation_input_tokens": 0}
    usage |= {"cache_read_input_tokens": 0, "output_tokens": 7}
    return {
        "id": f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": "tool_use" if turn.calls else "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def _message_events(whole: dict[str, Any]) -> Iterator[Event]:
    begun = whole | {"content": [], "stop_reason": None, "usage": whole["usage"] | {"output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    yield {"type": "ping"}
    for at, block in enumerate(whole["content"]):
        key, kind, empty = {
            "text": ("text", "text_delta", ""),
            "thinking": ("thinking", "thinking_delta", ""),
            "tool_use": ("input", "input_json_delta", {}),
        }[block["type"]]
        opened = block | {key: empty} | ({"signature": ""} if "signature" in block else {})
        yield {"type": "content_block_start", "index": at, "content_block": opened}
        told = block[key] if isinstance(block[key], str) else orjson.dumps(block[key]).decode()
        for half in (told[: len(told) // 2], told[len(told) // 2 :]):
            delta = {"type": kind, "partial_json" if key == "input" else key: half}
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        if "signature" in block:
            signed = {"type": "signature_delta", "signature": block["signature"]}
            yield {"type": "content_block_delta", "index": at, "delta": signed}
        yield {"type": "content_block_stop", "index": at}
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 7}}
    yield {"type": "message_stop"}


async def _stream(request: web.BaseRequest, events: Iterator[Event]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for one in events:
        await response.write(write_event(one))
    await response.write_eof()
    return response


def refuse_as(dialect: str, status: int) -> web.Response:
    """An error in the form of the dialect."""
    if dialect == "messages":
        body = {"type": "error", "error": {"type": "a_type", "message": "it is so"}, "request_id": "req_1"}
        return web.json_response(body, status=status)
    return error(status, message="it is so", type="a_type", code="a_code", param=None)


def half_of(dialect: str, model: str) -> bytes:
    """The first events of a stream."""
    if dialect == "chat":
        return event("half")
    turn = Turn("half and whole")
    if dialect == "responses":
        events = list(_response_events(_response({"model": model}, turn, "plain")))[:5]
    else:
        events = list(_message_events(_message({"model": model}, turn, "plain")))[:4]
    return b"".join(map(write_event, events))


FAILURES = {
    "chat": {"error": {"message": "it is so", "type": "server_error", "code": 500}},
    "responses": {"type": "error", "sequence_number": 5, "code": "server_error", "message": "it is so", "param": None},
    "messages": {"type": "error", "error": {"type": "overloaded_error", "message": "it is so"}},
}
"""An error in the middle of a stream."""


def write_event(event: Event) -> bytes:
    name = b"event: " + event["type"].encode() + b"\n" if "type" in event else b""
    return name + b"data: " + orjson.dumps(event) + b"\n\n"
