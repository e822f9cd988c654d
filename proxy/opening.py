"""The beginning of an answer: read as far as it takes to tell an overflow from everything else.

Law: a stream's comments pass at once, and its first event as soon as it is whole; no other byte of it is held back.
"""

import aiohttp
from aiohttp import web

from proxy.exchange import Exchange
from proxy.overflow import REFUSAL_STATUSES, Overflow, read_overflow
from proxy.relay import Relayed, begin_answer, write_chunk
from proxy.stream import FirstEvent

MAX_REFUSAL_BYTES = 64 * 1024
"""A longer refusal is not read."""
MAX_EMPTY_ANSWER_BYTES = 4 * 1024
"""Neither is a longer answer that is no stream: it holds more than an error."""
_FAULTS = (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, TimeoutError)
"""Who reads on meets them again."""


async def read_opening(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, exchange: Exchange
) -> tuple[bytes, Overflow | None]:
    """What was read of the answer and not passed on, and the overflow that it tells of.

    Where the answer is a stream, its headers have been passed on: `exchange.stream`.
    """
    if answer.status == 200 and answer.content_type == "text/event-stream":
        if exchange.stream is None:
            exchange.stream = await begin_answer(request, answer, exchange.response_headers(), exchange.relayed)
        first = await _read_first_event(answer, exchange.stream, exchange.relayed)
        return bytes(first.held), read_overflow(200, first.data) if first.data else None
    if answer.status == 200 and answer.content_type == "application/json":
        if (answer.content_length or 0) > MAX_EMPTY_ANSWER_BYTES:
            return b"", None
        held, is_whole = await _read_short(answer, MAX_EMPTY_ANSWER_BYTES)
    elif answer.status in REFUSAL_STATUSES:
        held, is_whole = await _read_short(answer, MAX_REFUSAL_BYTES)
    else:
        return b"", None
    is_judged = is_whole and (held or answer.status != 200)
    return held, read_overflow(answer.status, held) if is_judged else None


async def _read_first_event(answer: aiohttp.ClientResponse, stream: web.StreamResponse, relayed: Relayed) -> FirstEvent:
    first = FirstEvent()
    try:
        async for chunk in answer.content.iter_any():
            passed = first.feed(chunk)
            if passed:
                await write_chunk(stream, passed, relayed)
            if first.is_done:
                break
    except _FAULTS:
        pass
    return first


async def _read_short(answer: aiohttp.ClientResponse, max_bytes: int) -> tuple[bytes, bool]:
    """The body's beginning, and whether that is all of it. White space to keep a client waiting ends it."""
    held = bytearray()
    try:
        async for chunk in answer.content.iter_any():
            held += chunk
            if len(held) > max_bytes or not held.strip():
                return bytes(held), False
    except _FAULTS:
        return bytes(held), False
    return bytes(held), True
