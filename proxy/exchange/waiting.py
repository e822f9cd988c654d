"""A client that has to wait for a summary hears from us.

Law: nothing is sent before waiting has become long; then the headers of a stream, and comments, which every reader of
server-sent events skips.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TypeVar

from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from proxy.exchange.record import Exchange
from proxy.http.relay import PlainResponse

FIRST_COMMENT_SECONDS = 5.0
COMMENT_SECONDS = 10.0
"""Source: idle connections are cut after 30 s by common load balancers, after 100 s by CDNs."""
COMMENT = b": trimtab is writing a summary\n\n"

T = TypeVar("T")


async def wait_aloud(request: web.BaseRequest, exchange: Exchange, work: Coroutine[None, None, T]) -> T:
    """What the work yields. Where that takes long the answer is begun: `exchange.stream`."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=FIRST_COMMENT_SECONDS)
        with suppress(ConnectionError):  # the client has left; the server will cancel us
            if not done and exchange.stream is None:
                exchange.stream = await _begin_stream(request, exchange)
            while not done and exchange.stream is not None:
                await exchange.stream.write(COMMENT)
                done, _ = await asyncio.wait({task}, timeout=COMMENT_SECONDS)
        return await task
    finally:
        task.cancel()


async def _begin_stream(request: web.BaseRequest, exchange: Exchange) -> PlainResponse:
    """Status 200 and the headers of an event stream, sent."""
    headers = CIMultiDict([("Content-Type", "text/event-stream; charset=utf-8"), ("Cache-Control", "no-cache")])
    headers["x-trimtab-request-id"] = exchange.request_id
    stream = PlainResponse(headers=headers)
    if request.version < HttpVersion11:
        stream.force_close()
    await stream.prepare(request)
    return stream
