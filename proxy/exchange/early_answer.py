"""The beginning of an answer: read as far as it takes to tell an overflow from everything else.

Law: a stream's comments pass at once, and its first event as soon as it is whole; no other byte of it is held back. No
answer is held for long.
"""

import asyncio

import aiohttp
from aiohttp import web

from proxy.exchange.record import Exchange
from proxy.http.relay import Relayed, begin_answer, write_chunk
from proxy.wire.codec import Codec
from proxy.wire.overflow.classify import REFUSAL_STATUSES, Overflow
from proxy.wire.sse import FirstEvent

MAX_REFUSAL_BYTES = 64 * 1024
"""A longer refusal is not read."""
MAX_EMPTY_ANSWER_BYTES = 4 * 1024
"""Neither is a longer answer that is no stream: it holds more than an error."""
MAX_HELD_SECONDS = 2.0
_EVENTS = (b"data:", b"event:", b":")
_FAULTS = (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, TimeoutError)
"""Who reads on meets them again."""


async def read_opening(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, exchange: Exchange
) -> tuple[bytes, Overflow | None]:
    """What was read of the answer and not passed on, and the overflow that it tells of.

    Where the answer is a stream, its headers have been passed on: `exchange.stream`. Not where they tell its length,
    which another answer in its place would not have.
    """
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        return b"", None  # nobody asked for that, and nothing in it can be read
    if answer.status == 200 and answer.content_type == "text/event-stream":
        if exchange.stream is None and answer.content_length is None:
            exchange.stream = await begin_answer(request, answer, exchange.response_headers(), exchange.relayed)
        first = await _read_first_event(answer, exchange.codec, exchange.stream, exchange.relayed)
        return bytes(first.held), exchange.codec.read_refusal(200, first.data) if first.data else None
    if answer.status == 200 and answer.content_type == "application/json":
        if (answer.content_length or 0) > MAX_EMPTY_ANSWER_BYTES:
            return b"", None
        held, is_whole = await _read_short(answer, MAX_EMPTY_ANSWER_BYTES)
    elif answer.status in REFUSAL_STATUSES:
        held, is_whole = await _read_short(answer, MAX_REFUSAL_BYTES)
    else:
        return b"", None
    is_judged = is_whole and (held or answer.status != 200)
    return held, exchange.codec.read_refusal(answer.status, held) if is_judged else None


async def _read_first_event(
    answer: aiohttp.ClientResponse, codec: Codec, stream: web.StreamResponse | None, relayed: Relayed
) -> FirstEvent:
    """Reads up to the first event; what comes before it passes, where a stream has been begun."""
    first = codec.hold_first_event(keeps_all=stream is None)
    try:
        async for chunk in answer.content.iter_any():
            passed = first.feed(chunk)
            if passed and stream is not None:
                await write_chunk(stream, passed, relayed)
            if first.is_done:
                break
        else:
            first.finish()
    except _FAULTS:
        pass
    return first


async def _read_short(answer: aiohttp.ClientResponse, max_bytes: int) -> tuple[bytes, bool]:
    """The body's beginning, and whether that is all of it.

    White space to keep a client waiting ends it, and so do events under a false name, and a body that does not come.
    """
    held = bytearray()
    try:
        async with asyncio.timeout(MAX_HELD_SECONDS):
            async for chunk in answer.content.iter_any():
                held += chunk
                if len(held) > max_bytes or not held.strip() or held.lstrip().startswith(_EVENTS):
                    return bytes(held), False
    except _FAULTS:
        return bytes(held), False
    return bytes(held), True
