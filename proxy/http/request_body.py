"""Receives request bodies: checks their framing, reads them within bounds, decompresses them.

Law: the client's own bytes are forwarded unless a caller replaces them. A request that another server might read as two
is refused. A body that arrives too slowly is refused, and all bodies together have a bound. Only the time spent waiting
for the client counts as slow, not the time spent waiting for the upstream.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from math import inf

import msgspec
from aiohttp import HttpVersion10, HttpVersion11, web
from multidict import CIMultiDict

from trimtab.proxy.http.client import Body
from trimtab.proxy.http.content_coding import Decoded, decode_body, read_codings
from trimtab.proxy.http.errors import NO_MEMORY_LEFT, BadFramingError, OverloadedError, SlowRequestError
from trimtab.proxy.memory import Account

Decode = Callable[[Callable[[], Decoded]], Awaitable[Decoded]]

PEEK_BYTES = 64 * 1024  # Of a body that is not read whole, for the model's name. Chosen: clients write it first.
ENTITY_HEADERS = ("Content-Encoding", "Content-MD5", "Content-Digest", "Repr-Digest", "Digest")
"""Headers that describe the bytes of the client's body; they are removed if other bytes are sent."""
MIN_BYTES_PER_SECOND = 500  # Slowest rate after the first `silence_seconds`. Source: Apache's mod_reqtimeout.

MAX_CONTENT_LENGTH = 2**63 - 1  # The largest signed 64-bit number: servers read a larger one in different ways.


def check_framing(request: web.BaseRequest) -> None:
    """Raise BadFramingError if servers may disagree about where the request ends."""
    headers = request.headers
    codings = headers.getall("Transfer-Encoding") if "Transfer-Encoding" in headers else []
    if request.version < HttpVersion10:
        message = "a request must name its HTTP version"
    elif codings and request.version < HttpVersion11:
        message = "an HTTP/1.0 request cannot be chunked"
    elif codings and [coding.strip().lower() for coding in codings] != ["chunked"]:
        message = "Transfer-Encoding must be chunked or absent"
    elif int(headers.get("Content-Length", "0")) > MAX_CONTENT_LENGTH:
        message = "Content-Length is too large"
    else:
        return
    raise BadFramingError(message)


class _Upload(msgspec.Struct):
    account: Account | None = None
    held_bytes: int = 0


class Uploads(msgspec.Struct):
    """The bounds that all bodies share. left_bytes: that may still be held. silence_seconds: a client may pause."""

    left_bytes: float
    silence_seconds: float
    _open: dict[int, _Upload] = msgspec.field(default_factory=dict)

    def open(self, request: web.BaseRequest, account: Account) -> None:
        self._open.setdefault(id(request), _Upload()).account = account

    def find_account(self, request: web.BaseRequest) -> Account | None:
        upload = self._open.get(id(request))
        return None if upload is None else upload.account

    def rebound(self, most_bytes: int | None) -> None:
        """Change how many bytes may be held, None for no bound. Bytes that are held already count."""
        self.left_bytes = (inf if most_bytes is None else most_bytes) - sum(
            upload.held_bytes for upload in self._open.values()
        )

    async def read(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """The body, piece by piece. Raises SlowRequestError."""
        # Strategy: only the time in `readany` counts against the client. While the caller is busy, for example because
        # the upstream takes nothing, the clock stands. Each byte that came buys time, so a slow, steady client passes.
        loop = asyncio.get_running_loop()
        waited_seconds, received_bytes = 0.0, 0
        while True:
            allowed_seconds = self.silence_seconds + received_bytes / MIN_BYTES_PER_SECOND - waited_seconds
            started = loop.time()
            try:
                async with asyncio.timeout(min(allowed_seconds, self.silence_seconds)):
                    piece = await request.content.readany()
            except TimeoutError as error:
                message = "the rest of the request did not come in time (limits.client_silence_seconds)"
                raise SlowRequestError(message) from error
            if not piece:
                return
            waited_seconds += loop.time() - started
            received_bytes += len(piece)
            yield piece

    def hold(self, request: web.BaseRequest, size_bytes: int) -> None:
        """Count bytes that are held until the request is released. Raises OverloadedError."""
        if size_bytes > self.left_bytes:
            raise OverloadedError("too much text in flight (limits.max_held_bytes); try again")
        upload = self._open.get(id(request)) or self._open.setdefault(id(request), _Upload())
        if upload.account is not None and not upload.account.hold(size_bytes):
            raise OverloadedError(NO_MEMORY_LEFT)
        self.left_bytes -= size_bytes
        upload.held_bytes += size_bytes

    def release(self, request: web.BaseRequest) -> None:
        """Give back everything that is held for a request, after it was served or given up."""
        upload = self._open.pop(id(request), None)
        if upload is not None:
            self.left_bytes += upload.held_bytes
            if upload.account is not None:
                upload.account.close()


class ReceivedBody(msgspec.Struct, frozen=True):
    wire: bytes | list[bytes]  # the client's bytes; only the first pieces if the body is too large to be read whole
    json: bytes | None  # the body decompressed; None if it is too large or damaged
    beginning: bytes  # what could be decompressed of it, up to PEEK_BYTES
    is_too_large: bool = False
    rest: AsyncIterator[bytes] | None = None  # if the body is too large, the bytes after `wire`, still to be read
    work_bytes: int = 0  # memory that decoding and compacting it takes

    def write(self, pieces: tuple[bytes, ...] | None, headers: CIMultiDict[str]) -> Body:
        """The body to forward: `pieces`, for which `headers` lose what describes the client's bytes, or else those."""
        if pieces is not None and (len(pieces) > 1 or pieces[0] is not self.json):
            for name in ENTITY_HEADERS:
                headers.popall(name, None)
            return pieces
        return self.wire if isinstance(self.wire, bytes) else _chain(self.wire, self.rest)


async def receive_body(
    request: web.BaseRequest, max_bytes: int, uploads: Uploads, run: Decode = asyncio.to_thread
) -> ReceivedBody:
    """Receive the body, whole unless above `max_bytes`, also unpacked. Raises SlowRequestError, OverloadedError."""
    headers = request.headers
    codings = read_codings(headers.getall("Content-Encoding")) if "Content-Encoding" in headers else ()
    wire, rest = await _read(request, max_bytes, uploads)
    if isinstance(wire, bytes):
        if not codings:
            return ReceivedBody(wire, wire, wire[:PEEK_BYTES])
        # Always in a thread: even a small body may decompress to megabytes.
        decoded = await run(partial(decode_body, wire, codings, max_bytes))
        uploads.hold(request, len(decoded.body))
        if not (decoded.damaged or decoded.too_large):
            return ReceivedBody(wire, decoded.body, decoded.body[:PEEK_BYTES])
        return ReceivedBody(wire, None, decoded.body[:PEEK_BYTES], decoded.too_large)
    beginning = b"".join(wire)
    if codings:
        beginning = (await run(partial(decode_body, beginning, codings, PEEK_BYTES))).body
    return ReceivedBody(wire, None, beginning[:PEEK_BYTES], is_too_large=True, rest=rest)


async def receive_beginning(request: web.BaseRequest, least_bytes: int, uploads: Uploads) -> ReceivedBody:
    """Receive so many bytes or more, if the body has them; the rest stays. Raises SlowRequestError, OverloadedError."""
    arriving = uploads.read(request)
    pieces: list[bytes] = []
    size = 0
    async for piece in arriving:
        uploads.hold(request, len(piece))
        pieces.append(piece)
        size += len(piece)
        if size >= least_bytes:
            break
    return ReceivedBody(pieces, None, b"".join(pieces)[:PEEK_BYTES], rest=arriving)


async def _read(
    request: web.BaseRequest, max_bytes: int, uploads: Uploads
) -> tuple[bytes | list[bytes], AsyncIterator[bytes] | None]:
    if request.content.is_eof():  # the whole body arrived with the head
        whole = request.content.read_nowait()
        uploads.hold(request, len(whole))
        return (whole if len(whole) <= max_bytes else [whole]), None
    pieces: list[bytes] = []
    size, arriving = 0, uploads.read(request)
    announced = int(request.headers.get("Content-Length", "0"))
    async for piece in arriving:
        uploads.hold(request, len(piece))
        pieces.append(piece)
        size += len(piece)
        if max(size, announced) > max_bytes:
            return pieces, arriving
    return b"".join(pieces), None


async def _chain(pieces: list[bytes], rest: AsyncIterator[bytes] | None) -> AsyncIterator[bytes]:
    """The body, piece by piece; its first pieces were read before."""
    for piece in pieces:
        yield piece
    if rest is not None:
        async for piece in rest:
            yield piece
