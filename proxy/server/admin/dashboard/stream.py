"""The stream of events, for browsers.

Law: a reader that is slow or gone never holds anything up, and takes a bounded memory. Streams are no requests in
flight: they end at once when the proxy drains.
"""

import asyncio
import time
from contextlib import suppress
from functools import partial

import orjson
from aiohttp import web

from trimtab.proxy.account.history.table import Turn, list_after
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.http.errors import OverloadedError
from trimtab.proxy.server.admin.dashboard.files import SAFE
from trimtab.proxy.server.admin.dashboard.shapes import Json, shape_request
from trimtab.proxy.server.admin.dashboard.totals import read_totals
from trimtab.proxy.store.store import StoreError
from trimtab.proxy.telemetry.savings import Samples

MAX_STREAMS = 16
"""Browsers that one worker streams to. Chosen: a team; each takes at most some 500 kB."""
MAX_WAITING = 128
"""Requests that wait for one reader. Chosen: a second of a busy proxy, some 400 kB."""
LOOK_SECONDS = 0.25
"""Between two looks for new requests, of this worker or another one. Chosen: a person sees a request at once."""
TOTALS_SECONDS = 1.0
"""Source: the promise of totals at most once a second."""
COMMENT_SECONDS = 15.0
"""Source: the promise of a comment line; proxies close what is silent for longer, often after a minute."""
STALL_SECONDS = 30.0
"""A reader that takes nothing for so long is cut off. Chosen: a browser that sleeps connects again."""
_HEADERS = {
    **SAFE,
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold events back
}


async def stream_events(services: Services, request: web.BaseRequest, client: str | None = None) -> web.StreamResponse:
    """Stream to a browser until it leaves or the proxy drains; of a client's key, that client's requests only.

    Raises OverloadedError and StoreError.
    """
    streams = services.past.streams
    if not services.lifecycle.ready or streams.readers >= MAX_STREAMS:
        message = "too many streams of the dashboard at once, or the proxy is about to stop; try again"
        raise OverloadedError(message)
    response = web.StreamResponse(headers=_HEADERS)
    streams.readers += 1
    try:
        ending = streams.ending
        _, seq, _ = await services.past.read(partial(list_after, seq=0, most=0))
        await response.prepare(request)
        await _write_all(services, request, response, ending, seq, client)
    finally:
        streams.readers -= 1
    return response


async def _write_all(
    services: Services,
    request: web.BaseRequest,
    response: web.StreamResponse,
    ending: asyncio.Event,
    seq: int,
    client: str | None,
) -> None:
    totals: Json | None = None
    totals_at = written_at = 0.0
    while not ending.is_set():
        now = time.monotonic()
        pieces: list[bytes] = []
        if client is None and now - totals_at >= TOTALS_SECONDS:
            totals_at, before, totals = now, totals, await read_recent_totals(services)
            if totals != before:
                pieces.append(_write_event("totals", orjson.dumps(totals)))
        with suppress(StoreError):
            listed, seq, is_lost = await services.past.read(partial(list_after, seq=seq, most=MAX_WAITING))
            listed = [one for one in listed if client in {None, one.event.client}]
            pieces += await asyncio.to_thread(_write_requests, listed) if listed else []
            if is_lost:
                pieces.append(_write_event("lost", b"{}"))
        if not pieces and now - written_at >= COMMENT_SECONDS:
            pieces.append(b": still here\n\n")
        if pieces:
            written_at = now
            if not await _write(request, response, b"".join(pieces)):
                return
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await ending.wait()
    with suppress(ConnectionError):
        await response.write_eof()


def _write_requests(listed: list[Turn]) -> list[bytes]:
    return [_write_event("request", orjson.dumps(shape_request(one))) for one in listed]


async def read_recent_totals(services: Services) -> Json:
    """The totals, at most TOTALS_SECONDS old: all readers share them."""
    streams = services.past.streams
    async with streams.reading:
        if streams.totals is None or time.monotonic() - streams.totals[0] >= TOTALS_SECONDS / 2:
            samples = await read_samples(services)
            streams.totals = time.monotonic(), await asyncio.to_thread(read_totals, samples)
        return streams.totals[1]


async def read_samples(services: Services) -> Samples:
    """The metrics of all workers, in a thread: those of several processes are read from files."""
    metrics = services.recorder.metrics
    return await asyncio.to_thread(lambda: Samples.of(metrics.collect_all()))


def _write_event(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


async def _write(request: web.BaseRequest, response: web.StreamResponse, piece: bytes) -> bool:
    """Write to a reader; cut off one that takes nothing. Returns whether it goes on."""
    try:
        async with asyncio.timeout(STALL_SECONDS):
            await response.write(piece)
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
        return False
    return True
