"""Turns of a model that follows a script, whole or streamed in OpenAI's form, and the error for a long prompt."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from upstreams.recording import error, write_note

SUMMARY = write_note("SUMMARY: what was read so far.")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool's name, and the arguments of the call; for a custom tool of Responses, a text."""

    name: str
    arguments: dict[str, Any] | str


@dataclass(frozen=True, slots=True)
class Turn:
    """A text of the model, and its tool calls.

    thought: what it reasoned before. Chat completions do not show it.
    is_cut_off: the response ends at the limit of output tokens.
    """

    text: str
    calls: tuple[Call, ...] = ()
    thought: str = ""
    is_cut_off: bool = False


def refuse(tokens: int, window: int) -> web.Response:
    """OpenAI's error for a prompt that is too long."""
    message = (
        f"This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} tokens. "
        "Please reduce the length of the messages."
    )
    return error(400, message=message, type="invalid_request_error", param="messages", code="context_length_exceeded")


def refuse_flatly(tokens: int, window: int) -> web.Response:
    """The same error from older versions of vLLM: without the `error` object that SDKs look for."""
    message = (
        f"This model's maximum context length is {window} tokens. However, you requested {tokens} tokens in the "
        "messages, Please reduce the length of the messages."
    )
    body = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}
    return web.json_response(body, status=400)


async def reply(
    request: web.BaseRequest, body: dict[str, Any], turn: Turn, name: str, usage: dict[str, Any] | None = None
) -> web.StreamResponse:
    """Send a turn in the form that the request asks for: whole, or as a stream, with usage if requested."""
    if usage is None:
        usage = {"prompt_tokens": len(orjson.dumps(body)) // 4, "completion_tokens": 7}
        usage["total_tokens"] = sum(usage.values())
    if not body.get("stream"):
        return web.json_response(_whole(body["model"], turn, name) | {"usage": usage})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    options = body.get("stream_options") or {}
    for choices, counted in make_pieces(turn, name, usage if options.get("include_usage") else None):
        chunk = {"id": name, "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        await response.write(b"data: " + orjson.dumps(chunk | {"choices": choices} | counted) + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def _whole(model: str, turn: Turn, name: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text}
    if turn.calls:
        message["tool_calls"] = _calls(turn, name)
    choice = {"index": 0, "message": message, "finish_reason": _finish(turn)}
    return {"id": name, "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}


def make_pieces(turn: Turn, name: str, usage: dict[str, Any] | None) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """The choices and other members of each chunk. Texts and arguments are split into two chunks."""

    def choices(delta: dict[str, Any], finish: str | None = None) -> list[Any]:
        return [{"index": 0, "delta": delta, "finish_reason": finish}]

    yield choices({"role": "assistant", "content": ""}), {}
    for half in split_halves(turn.text):
        yield choices({"content": half}), {}
    for index, call in enumerate(_calls(turn, name)):
        arguments = call["function"]["arguments"]
        opened = call | {"index": index, "function": call["function"] | {"arguments": ""}}
        yield choices({"tool_calls": [opened]}), {}
        for half in split_halves(arguments):
            yield choices({"tool_calls": [{"index": index, "function": {"arguments": half}}]}), {}
    yield choices({}, _finish(turn)), {}
    if usage is not None:
        yield [], {"usage": usage}


def _calls(turn: Turn, name: str) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{name}_{index}",
            "type": "function",
            "function": {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()},
        }
        for index, call in enumerate(turn.calls)
    ]


def _finish(turn: Turn) -> str:
    if turn.is_cut_off:
        return "length"
    return "tool_calls" if turn.calls else "stop"


def split_halves(text: str) -> tuple[str, str]:
    """The halves of a text, which arrive in two events."""
    middle = len(text) // 2
    return text[:middle], text[middle:]
