"""Converts a recorded chat session to the body of a Messages request.

Law: all content is kept, without the recording's cache markers. The results of a turn are in one user message, with
the user's text right behind them.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from support.dialects.oddities import NotConvertibleError, Paired, pair, parts_of, split_leading
from support.dialects.seals import seal

Wire = dict[str, Any]

FIRST = "Please continue."
"""The user's text before an assistant message that would be first. Source: LiteLLM adds the same."""
MARKER = {"type": "ephemeral"}


def to_messages(
    session: Wire, *, model: str = "recorded", with_thinking: bool = False, with_markers: bool = False
) -> Wire:
    """The body for all messages of a session, with its tools. NotConvertibleError: see `oddities`.

    with_thinking: each assistant message begins with signed thinking.
    with_markers: the system prompt and the last block are marked for the cache, as Claude Code does.
    """
    leading, rest = split_leading(session["messages"])
    body: Wire = {"model": model, "max_tokens": 4096}
    if leading:
        body["system"] = [_convert_part(part) for message in leading for part in parts_of(message)]
    body["messages"] = convert(rest, with_thinking=with_thinking)
    tools = session.get("tools") or list(guess_tools(session["messages"]))
    if tools:
        body["tools"] = [_convert_tool(tool["function"]) for tool in tools]
    if with_thinking:
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    if with_markers:
        _mark(body)
    return body


def convert(messages: Sequence[Wire], *, with_thinking: bool = False) -> list[Wire]:
    """The messages, in order."""
    found: list[Wire] = []
    behind_results = False
    for index, paired in enumerate(pair(messages)):
        role = paired.message["role"]
        blocks = list(_convert(paired))
        if not blocks:
            continue
        if role == "assistant" and not found:
            found.append({"role": "user", "content": FIRST})
        if role == "assistant" and with_thinking:
            blocks.insert(0, make_thinking(f"I consider message {index}."))
        if behind_results and role in {"tool", "user"}:
            found[-1]["content"] += blocks
        else:
            found.append({"role": "assistant" if role == "assistant" else "user", "content": blocks})
        behind_results = role == "tool"
    return found


def make_thinking(thought: str) -> Wire:
    """A thinking block that is signed as the provider signs it."""
    return {"type": "thinking", "thinking": thought, "signature": seal(thought)}


def _convert(paired: Paired) -> Iterator[Wire]:
    message = paired.message
    if message["role"] not in {"user", "assistant", "tool"}:
        why = f"a {message['role']} message that does not lead"
        raise NotConvertibleError(why)
    if message["role"] == "tool":
        content = message.get("content") or ""
        content = content if isinstance(content, str) else [_convert_part(part) for part in parts_of(message)]
        yield {"type": "tool_result", "tool_use_id": paired.ids[0], "content": content}
        return
    yield from map(_convert_part, parts_of(message))
    for call, key in zip(message.get("tool_calls") or (), paired.ids, strict=True):
        asked = {"name": call["function"]["name"], "input": read_input(call["function"]["arguments"])}
        yield {"type": "tool_use", "id": key, **asked}


def read_input(arguments: str) -> Wire:
    """The arguments as an object. What is none becomes the member `arguments` of one."""
    try:
        read = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        read = arguments
    return read if isinstance(read, dict) else {"arguments": read}


def _convert_part(part: Wire) -> Wire:
    if part.get("type") == "text":
        return {"type": "text", "text": part["text"]}
    if part.get("type") == "image_url":
        return {"type": "image", "source": _read_source(part["image_url"]["url"])}
    why = f"a part of the kind {part.get('type')!r}"
    raise NotConvertibleError(why)


def _read_source(url: str) -> Wire:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    try:
        base64.b64decode(data, validate=True)
    except binascii.Error as error:
        why = "an image that is not base64"
        raise NotConvertibleError(why) from error
    return {"type": "base64", "media_type": kind, "data": data}


def _convert_tool(function: Wire) -> Wire:
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function["name"], "description": function.get("description") or "", "input_schema": schema}


def guess_tools(messages: Sequence[Wire]) -> Iterator[Wire]:
    """The tools that were called: the API wants a definition for them."""
    names = [call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()]
    yield from ({"function": {"name": name}} for name in dict.fromkeys(names))


def _mark(body: Wire) -> None:
    last = body["messages"][-1]
    if isinstance(last["content"], str):
        last["content"] = [{"type": "text", "text": last["content"]}]
    for blocks in filter(None, (body.get("system"), last["content"])):
        blocks[-1] = {**blocks[-1], "cache_control": MARKER}
