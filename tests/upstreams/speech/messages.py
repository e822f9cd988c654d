"""A model that speaks Messages: whole, or with the events of a stream.

Sources: anthropic-sdk-python, `types/raw_*_event.py` and `types/usage.py`; Anthropic's documentation of streaming.
"""

from collections.abc import Iterator
from typing import Any

import orjson
from aiohttp import web
from support.dialects.messages_validity import blocks_of, walk_markable
from support.dialects.seals import seal
from upstreams.scripted import split_halves
from upstreams.speech.spent import Said, Spent, send_events

Wire = dict[str, Any]

FRESH_TOKENS = 3
"""Tokens after the last cache marker, which are neither read from the cache nor written to it."""
WINDOW_EXCEEDED = "model_context_window_exceeded"


def read_prompt(body: Wire) -> bytes:
    """What the model reads, in a fixed order, without cache markers."""
    parts = [body.get("tools"), body.get("system"), body.get("messages")]
    return orjson.dumps(_unmark(parts))


def _unmark(value: object) -> object:
    if isinstance(value, dict):
        return {key: _unmark(one) for key, one in value.items() if key != "cache_control"}
    return [_unmark(one) for one in value] if isinstance(value, list) else value


def is_cached(body: Wire) -> bool:
    """Whether the request has a cache marker."""
    return bool(body.get("cache_control")) or any(block.get("cache_control") for block in walk_markable(body))


def fault(status: int, kind: str, message: str) -> web.Response:
    """An error in Anthropic's form."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return web.json_response(body, status=status)


def refuse(problem: str) -> web.Response:
    """The error for an invalid request."""
    return fault(400, "invalid_request_error", problem)


def refuse_long(tokens: int, window: int) -> web.Response:
    """The error for a prompt that is too long."""
    return refuse(f"prompt is too long: {tokens} tokens > {window} maximum")


async def refuse_in_stream(request: web.BaseRequest, body: Wire, said: Said) -> web.StreamResponse:
    """A response that ends at once, because the window is full."""
    return await reply(request, body, said, stop_reason=WINDOW_EXCEEDED)


async def reply(
    request: web.BaseRequest, body: Wire, said: Said, *, stop_reason: str | None = None
) -> web.StreamResponse:
    """Send a turn in the form that the request asks for."""
    whole = make_message(body, said, stop_reason)
    if not body.get("stream"):
        return web.json_response(whole)
    return await send_events(request, make_events(whole))


def make_message(body: Wire, said: Said, stop_reason: str | None = None) -> Wire:
    """The finished message."""
    reason = "tool_use" if said.turn.calls else "end_turn"
    return {
        "id": f"msg_{said.name}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": list(make_content(said)),
        "stop_reason": stop_reason or ("max_tokens" if said.turn.is_cut_off else reason),
        "stop_sequence": None,
        "usage": make_usage(said.spent, is_cached=is_cached(body)),
    }


def make_content(said: Said) -> Iterator[Wire]:
    """The blocks of a turn: thinking, a text, and the calls."""
    turn = said.turn
    if turn.thought:
        yield {"type": "thinking", "thinking": turn.thought, "signature": seal(turn.thought)}
    if turn.text:
        yield {"type": "text", "text": turn.text, "citations": None}
    for index, call in enumerate(turn.calls):
        yield {"type": "tool_use", "id": f"toolu_{said.name}_{index}", "name": call.name, "input": call.arguments}


def make_usage(spent: Spent, *, is_cached: bool) -> Wire:
    """The usage of a message. The tokens read from the cache, and those written to it, are not among the input's."""
    fresh = min(FRESH_TOKENS, spent.prompt) if is_cached else spent.prompt
    read = min(spent.cached, spent.prompt - fresh) if is_cached else 0
    written = spent.prompt - fresh - read
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": spent.completion,
        "service_tier": "standard",
    }


def make_events(whole: Wire) -> Iterator[Wire]:
    """The events of a streamed message, in order."""
    begun = {"content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": {**whole, **begun}}
    for index, block in enumerate(whole["content"]):
        kind = block["type"]
        yield {"type": "content_block_start", "index": index, "content_block": {**block, **EMPTY[kind]}}
        yield from [] if index else [{"type": "ping"}]
        for delta in make_deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    counted = {key: value for key, value in whole["usage"].items() if key.endswith("_tokens")}
    yield {"type": "message_delta", "delta": ended, "usage": counted}
    yield {"type": "message_stop"}


EMPTY: dict[str, Wire] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}
"""What a block is without yet when it begins."""


def make_deltas(block: Wire) -> Iterator[Wire]:
    """The pieces of a block, in order."""
    if block["type"] == "tool_use":
        yield {"type": "input_json_delta", "partial_json": ""}
        for half in split_halves(orjson.dumps(block["input"]).decode()):
            yield {"type": "input_json_delta", "partial_json": half}
        return
    name = block["type"]
    for half in split_halves(block[name]):
        yield {"type": f"{name}_delta", name: half}
    if name == "thinking":
        yield {"type": "signature_delta", "signature": block["signature"]}


def check_seals(body: Wire) -> list[str]:
    """Thinking that is not as the provider signed it."""
    return [
        f"messages.{rank}.content.{index}: Invalid `signature` in `thinking` block"
        for rank, message in enumerate(body["messages"])
        for index, block in enumerate(blocks_of(message))
        if block.get("type") == "thinking" and block.get("signature") != seal(block["thinking"])
    ]
