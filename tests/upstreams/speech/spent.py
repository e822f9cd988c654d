"""What a request costs, and how a stream of named events is sent."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from upstreams.scripted import Turn

Wire = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Spent:
    """The tokens of a request's prompt, how many of them were read from the cache, and those of the response."""

    prompt: int
    cached: int
    completion: int = 7


@dataclass(frozen=True, slots=True)
class Said:
    """A turn that is said now, with the name that makes its ids unique, and its cost."""

    turn: Turn
    name: str
    spent: Spent


def write_event(event: Wire) -> bytes:
    """A server-sent event that is named by its type."""
    return b"event: " + event["type"].encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"


async def send_events(request: web.BaseRequest, events: Iterable[Wire]) -> web.StreamResponse:
    """Send server-sent events that are named by their type."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    for event in events:
        await response.write(write_event(event))
    await response.write_eof()
    return response
