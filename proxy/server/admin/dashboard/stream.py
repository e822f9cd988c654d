"""The stream of events, for browsers and for the other workers.

Law: a reader that is slow or gone never holds anything up, and takes a bounded memory. Streams are no requests in
flight: they end at once when the proxy drains.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress

import orjson
from aiohttp import web

from proxy.account.history.live import Item, Subscriber
from proxy.account.history.place import Place
from proxy.account.history.turn import Turn
from proxy.exchange.services import Services
from proxy.http.errors import OverloadedError
from proxy.server.admin.dashboard.files import SAFE
from proxy.server.admin.dashboard.parts import number_of
from proxy.server.admin.dashboard.peers import FAILURES, connect, correct_cuts
from proxy.server.admin.dashboard.shapes import Json, shape_turn
from proxy.server.admin.dashboard.totals import read_totals
from proxy.tasks import Tasks
from proxy.telemetry.samples import Samples

MAX_STREAMS = 16
"""Browsers that one worker streams to. Chosen: a team; each takes at most some 500 kB."""
TOTALS_SECONDS = 1.0
"""Source: the promise of totals at most once a second."""
COMMENT_SECONDS = 15.0
"""Source: the promise of a comment line; proxies close what is silent for longer, often after a minute."""
STALL_SECONDS = 30.0
"""A reader that takes nothing for so long is cut off. Chosen: a browser that sleeps connects again."""
AGAIN_SECONDS = 1.0
"""Pause before another worker is asked again. Chosen: a restart takes about as long."""
LOST = b"lost"
"""Told between workers: events are missing."""
_HEADERS = {
    **SAFE,
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold events back
}


async def stream_events(services: Services, request: web.BaseRequest) -> web.StreamResponse:
    """Stream to a browser until it leaves or the proxy drains. Raises OverloadedError."""
    live = services.past.live
    if not services.lifecycle.ready or live.readers >= MAX_STREAMS:
        message = "too many streams of the dashboard at once, or the proxy is about to stop; try again"
        raise OverloadedError(message)
    response = web.StreamResponse(headers=_HEADERS)
    tasks = Tasks(lambda error: _record(services, error))
    live.readers += 1
    try:
        with live.subscribing() as subscriber:
            await _join_others(services.place, subscriber, tasks)
            await response.prepare(request)
            await _write_all(services, request, response, subscriber)
    finally:
        live.readers -= 1
        await tasks.close()
    return response


async def _write_all(
    services: Services, request: web.BaseRequest, response: web.StreamResponse, subscriber: Subscriber
) -> None:
    totals: Json | None = None
    totals_at = written_at = 0.0
    while not subscriber.is_closed:
        now = time.monotonic()
        pieces: list[bytes] = []
        if now - totals_at >= TOTALS_SECONDS:
            totals_at, before, totals = now, totals, await read_recent_totals(services)
            if totals != before:
                pieces.append(_write_event("totals", orjson.dumps(totals)))
        items, is_lost = await subscriber.take(0.0 if pieces else TOTALS_SECONDS)
        if is_lost:
            pieces.append(_write_event("lost", b"{}"))
        pieces += [_write_event("request", orjson.dumps(event)) for event in await _shape(services, items)]
        if not pieces and now - written_at >= COMMENT_SECONDS:
            pieces.append(b": still here\n\n")
        if pieces:
            written_at = now
            if not await _write(request, response, b"".join(pieces)):
                return
    with suppress(ConnectionError):
        await response.write_eof()


async def read_recent_totals(services: Services) -> Json:
    """The totals, at most TOTALS_SECONDS old: all readers share them."""
    live = services.past.live
    async with live.reading:
        if live.totals is None or time.monotonic() - live.totals[0] >= TOTALS_SECONDS / 2:
            samples = await read_samples(services)
            live.totals = time.monotonic(), await asyncio.to_thread(read_totals, samples)
        return live.totals[1]


async def read_samples(services: Services) -> Samples:
    """The metrics of all workers, in a thread: those of several processes are read from files."""
    metrics = services.recorder.metrics
    return await asyncio.to_thread(lambda: Samples.of(metrics.collect_all()))


async def _shape(services: Services, items: Iterable[Item]) -> list[Json]:
    number = number_of(services)
    events = [shape_turn(item, number) if isinstance(item, Turn) else orjson.loads(item) for item in items]
    await correct_cuts(services, events)
    return events


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


async def _join_others(place: Place | None, subscriber: Subscriber, tasks: Tasks) -> None:
    """Have the events of all other workers put into the subscription; wait a moment for the first connections."""
    if place is None:
        return
    joined = [asyncio.Event() for _ in place.others]
    for number, has_joined in zip(place.others, joined, strict=True):
        _ = tasks.start(_pump(place, number, subscriber, has_joined))
    with suppress(TimeoutError):
        async with asyncio.timeout(AGAIN_SECONDS):
            for has_joined in joined:
                await has_joined.wait()


async def _pump(place: Place, number: int, subscriber: Subscriber, has_joined: asyncio.Event) -> None:
    """Put the events of another worker into a subscription, until cancelled."""
    while True:
        with suppress(*FAILURES):
            async with connect(place, number) as session, session.get("http://worker/events") as answer:
                await answer.content.readline()
                if has_joined.is_set():  # something may have happened since the last connection
                    subscriber.lose()
                has_joined.set()
                async for line in answer.content:
                    word = line.strip()
                    if word == LOST:
                        subscriber.lose()
                    elif word:
                        subscriber.put(word)
        if has_joined.is_set():
            subscriber.lose()
        await asyncio.sleep(AGAIN_SECONDS)


async def stream_to_worker(services: Services, request: web.BaseRequest) -> web.StreamResponse:
    """Stream this worker's events to another one: a line each, empty lines to find out whether it still listens."""
    response, number = web.StreamResponse(), number_of(services)
    with services.past.live.subscribing() as subscriber:
        await response.prepare(request)
        is_there = await _write(request, response, b"\n")
        while is_there and not subscriber.is_closed:
            items, is_lost = await subscriber.take(COMMENT_SECONDS)
            lines = [LOST] if is_lost else []
            lines += [orjson.dumps(shape_turn(item, number)) for item in items if isinstance(item, Turn)]
            is_there = await _write(request, response, b"".join(line + b"\n" for line in lines or [b""]))
    with suppress(ConnectionError):
        await response.write_eof()
    return response


def _record(services: Services, error: BaseException) -> None:
    if isinstance(error, Exception):
        services.recorder.record_fault("", "tell", error)
