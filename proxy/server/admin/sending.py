"""Sends our own pages to readers that may be slow, and to many of them at once: data, files, and the stream of events.

Law: a page is only made if its reader may have another one. What a reader has not read yet counts as memory of requests
does, and ends after the same time. Files are exactly those of one folder, of known types, as they were when the program
started: an update of the package does not change a running one. The page may load nothing from elsewhere. A reader of
events that is slow or gone never holds anything up, and takes a bounded memory. Streams are no requests in flight: they
end at once when the proxy drains.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec
import orjson
from aiohttp import web
from multidict import CIMultiDict

from trimtab.proxy.account.history.table import Turn, list_after
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.http.aiohttp_fixes.server import PlainResponse
from trimtab.proxy.http.errors import OverloadedError
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.server.admin.shapes import Json, read_totals, shape_request
from trimtab.proxy.store.store import StoreError
from trimtab.proxy.telemetry.savings import Samples

MAX_PAGES = 128  # Made or sent at once. Chosen: a page takes milliseconds; more readers than that are no people.
MAX_SHARED_OF_ONE = 64  # As MAX_PAGES, of one address and client key, for pages that are shared. Chosen: half of all.
MAX_PAGES_OF_ONE = 16  # As MAX_SHARED_OF_ONE, for other pages. Chosen: two browsers ask for as many at once.
PIECE_BYTES = 64 * 1024  # Sent at once. Chosen: as asyncio's buffer, of which each reader has one.

Make = Callable[[], Awaitable[web.StreamResponse]]  # Makes a page, or sends a stream of its own. Raises ProxyError.


async def send_page(
    services: Services, request: web.BaseRequest, tenant: str, make: Make, *, is_shared: bool
) -> web.StreamResponse:
    """Make and send a page. tenant: whose memory it takes unless it `is_shared`. Raises as `make`, OverloadedError."""
    kind, most_pages = ("shared", MAX_SHARED_OF_ONE) if is_shared else ("own", MAX_PAGES_OF_ONE)
    with _reading(services.pages_in_flight, f"{kind} {request.remote} {tenant}", most_pages):
        answer = await make()
        if not isinstance(answer, web.Response) or not isinstance(answer.body, bytes):
            return answer
        body, memory = answer.body, services.memory
        if is_shared:
            return await send_whole(Reply(request), answer, body)
        if not memory.try_take(tenant, len(body)):
            message = "there is no memory for this page now; read the pages that you have asked for, or try again"
            raise OverloadedError(message)
        try:
            return await send_whole(Reply(request), answer, body)
        finally:
            memory.give(tenant, len(body))


@contextmanager
def _reading(in_flight: Counter[str], reader: str, most_pages: int) -> Iterator[None]:
    """A block in which a reader waits for a page, or reads it. Raises OverloadedError."""
    if in_flight.total() >= MAX_PAGES or in_flight[reader] >= most_pages:
        message = "too many pages of trimtab are being read at once; read those that you have asked for, or try again"
        raise OverloadedError(message)
    in_flight[reader] += 1
    try:
        yield
    finally:
        in_flight[reader] -= 1
        if not in_flight[reader]:
            del in_flight[reader]


async def send_whole(reply: Reply, answer: web.Response, body: bytes) -> web.StreamResponse:
    request = reply.request
    response = PlainResponse(status=answer.status, headers=CIMultiDict(answer.headers))
    response.content_length = len(body)
    if answer.keep_alive is False:
        response.force_close()
    try:
        await reply.begin(response)
        for start in range(0, 0 if request.method == "HEAD" else len(body), PIECE_BYTES):
            await reply.write(body[start : start + PIECE_BYTES])
            await reply.wait_for_client()
        await response.write_eof()
    except ConnectionError:
        pass  # the reader has left, or takes nothing
    return response


FOLDER = Path(__file__).parents[1] / "page"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
"""Content types by the ending of a name. A file with another ending is not served."""
SAFE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""Headers of every answer of the dashboard."""
UNSTORED = {**SAFE, "Cache-Control": "no-store"}  # headers of what changes: data and errors


class PageFile(msgspec.Struct, frozen=True):
    body: bytes
    content_type: str
    tag: str


def load_files(folder: Path) -> Mapping[str, PageFile]:
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    read = [(path, path.read_bytes()) for path in paths if path.suffix in TYPES and path.is_file()]
    return {path.name: PageFile(body, TYPES[path.suffix], f'"{sha256(body).hexdigest()[:32]}"') for path, body in read}


FILES = load_files(FOLDER)  # the page. It takes some 80 kB.


def find_file(name: str) -> PageFile | None:
    return FILES.get(name or INDEX)


def answer_file(request: web.BaseRequest, file: PageFile) -> web.Response:
    headers = {**SAFE, "Cache-Control": "no-cache", "ETag": file.tag}
    if file.tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.body, headers={**headers, "Content-Type": file.content_type})


MAX_STREAMS = 16  # Browsers that one worker streams to. Chosen: a team; each takes at most some 500 kB.
MAX_WAITING = 128  # Requests that wait for one reader. Chosen: a second of a busy proxy, some 400 kB.
LOOK_SECONDS = 0.25  # For new requests, of any worker. Chosen: a person sees a request at once.
TOTALS_SECONDS = 1.0  # source: the promise of totals at most once a second
COMMENT_SECONDS = 15.0  # Source: the promise of a comment line; proxies close what is silent, often after a minute.
STALL_SECONDS = 30.0  # A reader that takes nothing is cut off. Chosen: a browser that sleeps connects again.
_HEADERS = {
    **SAFE,
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold events back
}


async def stream_events(services: Services, request: web.BaseRequest, client: str | None = None) -> web.StreamResponse:
    """Stream until the browser leaves or the proxy drains; to a client its own. Raises OverloadedError, StoreError."""
    streams = services.past.streams
    if not services.lifecycle.ready or streams.readers >= MAX_STREAMS:
        raise OverloadedError("too many streams of the dashboard at once, or the proxy is about to stop; try again")
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
    written_at = 0.0
    while not ending.is_set():
        now = time.monotonic()
        pieces: list[bytes] = []
        if client is None:
            before, totals = totals, await read_recent_totals(services)
            if totals != before:
                pieces.append(_write_event("totals", totals))
        with suppress(StoreError):
            listed, seq, is_lost = await services.past.read(partial(list_after, seq=seq, most=MAX_WAITING))
            listed = [one for one in listed if client in {None, one.event.client}]
            pieces += await asyncio.to_thread(_write_requests, listed) if listed else []
            if is_lost:
                pieces.append(_write_event("lost", {}))
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
    return [_write_event("request", shape_request(one)) for one in listed]


async def read_recent_totals(services: Services) -> Json:
    streams = services.past.streams
    async with streams.reading:
        if streams.totals is None or time.monotonic() - streams.totals[0] >= TOTALS_SECONDS:
            streams.totals = time.monotonic(), await asyncio.to_thread(read_totals, await read_samples(services))
        return streams.totals[1]


async def read_samples(services: Services) -> Samples:
    """The metrics of all workers, in a thread: those of several processes are read from files."""
    return await asyncio.to_thread(lambda: Samples.of(services.recorder.metrics.collect_all()))


def _write_event(name: str, data: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))


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
