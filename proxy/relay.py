"""The upstream's answer on its way to the client, chunk by chunk.

Law: what arrives leaves at once and unchanged; the tap reads a copy. An answer that breaks off is never closed as if
it were whole.
"""

import time
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from proxy.stream import ResponseTap
from proxy.upstream import Headers, drop_hop_by_hop, read_headers

BODILESS = frozenset({204, 304})


@dataclass(slots=True)
class Relayed:
    """How an answer went. Times are of the monotonic clock, 0.0 where there was no such moment."""

    status: int = 0
    first_byte_at: float = 0.0
    last_byte_at: float = 0.0
    broken: bool = False


async def relay_answer(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, added: Headers, tap: ResponseTap | None, relayed: Relayed
) -> web.StreamResponse:
    """Pass the answer on, with the headers `added`; `relayed` is filled in on the way."""
    relayed.status = answer.status
    headers = CIMultiDict(drop_hop_by_hop(read_headers(answer.raw_headers)))
    headers.extend(added)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            if not relayed.first_byte_at:
                relayed.first_byte_at = time.monotonic()
            await response.write(chunk)
            if tap is not None:
                tap.feed(chunk)
    except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, TimeoutError):
        relayed.broken = True
        if request.transport is not None:
            request.transport.abort()
        return response
    relayed.last_byte_at = time.monotonic()
    await response.write_eof()
    if tap is not None:
        tap.finish()
    return response
