"""Request bodies: where they end, as they arrive, read whole, decompressed, or only their beginning.

Law: what goes out is the client's own bytes unless somebody says otherwise, and what another server might read as two
requests goes no further. No body may come too slowly, nor may all of them together fill the memory. Only time spent
waiting for the client counts: an upstream's is none of its fault.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf

from aiohttp import HttpVersion10, HttpVersion11, web
from multidict import CIMultiDict

from proxy.http.client import Body
from proxy.http.content_coding import Decoded, decode_body, read_codings
from proxy.http.errors import NO_MEMORY_LEFT, BadFramingError, OverloadedError, SlowRequestError
from proxy.memory import Account

Decode = Callable[[Callable[[], Decoded]], Awaitable[Decoded]]

PEEK_BYTES = 64 * 1024
ENTITY_HEADERS = ("Content-Encoding", "Content-MD5", "Content-Digest", "Repr-Digest", "Digest")
"""True of the bytes that the client sent, and of no others."""
MIN_BYTES_PER_SECOND = 500
"""On average, once the first `silence_seconds` are over. Source: Apache's mod_reqtimeout."""

MAX_CONTENT_LENGTH = 2**63 - 1
"""More is no number of bytes to most servers, and to some no number at all."""


def check_framing(request: web.BaseRequest) -> None:
    """Raises BadFramingError where it is not certain where a request ends."""
    codings = request.headers.getall("Transfer-Encoding", [])
    if request.version < HttpVersion10:
        message = "a request must say its version of HTTP"
    elif codings and request.version < HttpVersion11:
        message = "a request of HTTP/1.0 cannot be chunked"
    elif codings and [coding.strip().lower() for coding in codings] != ["chunked"]:
        message = "Transfer-Encoding must be chunked, or not be there"
    elif int(request.headers.get("Content-Length", "0")) > MAX_CONTENT_LENGTH:
        message = "Content-Length is too large"
    else:
        return
    raise BadFramingError(message)


@dataclass(slots=True)
class Uploads:
    """What all bodies of a proxy share: `left_bytes` may still be held, and a client may be silent for so long.

    What is held counts in the request's account, too, if it has one.
    """

    left_bytes: float
    silence_seconds: float
    _held_bytes: dict[int, int] = field(default_factory=dict)
    _accounts: dict[int, Account] = field(default_factory=dict)

    def open(self, request: web.BaseRequest, account: Account) -> None:
        """From now on, until the request is released, what is held of it counts in the account."""
        self._accounts[id(request)] = account

    def find_account(self, request: web.BaseRequest) -> Account | None:
        """The account that was opened for a request, if one was."""
        return self._accounts.get(id(request))

    def rebound(self, most_bytes: int | None) -> None:
        """From now on no more than that may be held, None for any number; what is held now counts."""
        self.left_bytes = (inf if most_bytes is None else most_bytes) - sum(self._held_bytes.values())

    async def read(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """The body, piece by piece. Raises SlowRequestError."""
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
        """So many bytes of a request are kept until it is released. Raises OverloadedError."""
        if size_bytes > self.left_bytes:
            message = "too much text in flight (limits.max_held_bytes); try again"
            raise OverloadedError(message)
        account = self._accounts.get(id(request))
        if account is not None and not account.hold(size_bytes):
            raise OverloadedError(NO_MEMORY_LEFT)
        self.left_bytes -= size_bytes
        self._held_bytes[id(request)] = self._held_bytes.get(id(request), 0) + size_bytes

    def release(self, request: web.BaseRequest) -> None:
        """The request has been served, or given up."""
        self.left_bytes += self._held_bytes.pop(id(request), 0)
        account = self._accounts.pop(id(request), None)
        if account is not None:
            account.close()


@dataclass(frozen=True, slots=True)
class ReceivedBody:
    """A body's bytes as received, and what they say.

    `wire` is the client's bytes, or the first pieces of a body that is too large to be read whole; `rest` then is
    what follows. `json` is the same decompressed; None where it cannot be read. `beginning` is what could be read of
    it, up to PEEK_BYTES. `work_bytes` is the memory that work on it takes.
    """

    wire: bytes | list[bytes]
    json: bytes | None
    beginning: bytes
    is_too_large: bool = False
    rest: AsyncIterator[bytes] | None = None
    work_bytes: int = 0

    def write(self, pieces: tuple[bytes, ...] | None, headers: CIMultiDict[str]) -> Body:
        """What goes out: the client's own bytes, compressed or not, unless the `pieces` are something else than `json`.

        Takes from the `headers` what is true no more.
        """
        if pieces is not None and (len(pieces) > 1 or pieces[0] is not self.json):
            for name in ENTITY_HEADERS:
                headers.popall(name, None)
            return pieces
        return self.wire if isinstance(self.wire, bytes) else _chain(self.wire, self.rest)


async def receive_body(
    request: web.BaseRequest, max_bytes: int, uploads: Uploads, run: Decode = asyncio.to_thread
) -> ReceivedBody:
    """The body, read whole unless it is larger than `max_bytes`, compressed or decompressed.

    `run` does work in a thread.

    Raises SlowRequestError, and OverloadedError where too much is held already.
    """
    encoded = request.headers.getall("Content-Encoding", None)
    codings = read_codings(encoded) if encoded else ()
    arriving = uploads.read(request)
    wire = await _read(request, max_bytes, arriving, uploads)
    if isinstance(wire, bytes):
        if not codings:
            return ReceivedBody(wire, wire, wire[:PEEK_BYTES])
        # Always in a thread: a few bytes may become millions.
        decoded = await run(partial(decode_body, wire, codings, max_bytes))
        uploads.hold(request, len(decoded.body))
        if not (decoded.damaged or decoded.too_large):
            return ReceivedBody(wire, decoded.body, decoded.body[:PEEK_BYTES])
        return ReceivedBody(wire, None, decoded.body[:PEEK_BYTES], decoded.too_large)
    beginning = b"".join(wire)
    if codings:
        beginning = (await run(partial(decode_body, beginning, codings, PEEK_BYTES))).body
    return ReceivedBody(wire, None, beginning[:PEEK_BYTES], is_too_large=True, rest=arriving)


async def _read(
    request: web.BaseRequest, max_bytes: int, arriving: AsyncIterator[bytes], uploads: Uploads
) -> bytes | list[bytes]:
    """The whole body; its first pieces where it is larger than `max_bytes`."""
    if request.content.is_eof():  # all of it has come with the head
        whole = request.content.read_nowait()
        uploads.hold(request, len(whole))
        return whole if len(whole) <= max_bytes else [whole]
    pieces: list[bytes] = []
    size = 0
    announced = int(request.headers.get("Content-Length", "0"))
    async for piece in arriving:
        uploads.hold(request, len(piece))
        pieces.append(piece)
        size += len(piece)
        if max(size, announced) > max_bytes:
            return pieces
    return b"".join(pieces)


async def _chain(pieces: list[bytes], rest: AsyncIterator[bytes] | None) -> AsyncIterator[bytes]:
    """The body whose first pieces were read already, piece by piece."""
    for piece in pieces:
        yield piece
    if rest is not None:
        async for piece in rest:
            yield piece
