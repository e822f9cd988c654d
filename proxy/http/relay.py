"""The upstream's answer on its way to the client, chunk by chunk.

Law: what arrives leaves at once and unchanged; the tap reads a copy. An answer that breaks off is never closed as if
it were whole.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import aiohttp
from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from proxy.http.aiohttp_fixes import PlainResponse, follow, reset_transport
from proxy.http.errors import UpstreamInvalidError
from proxy.http.headers import Headers, answer_headers, is_sendable
from proxy.telemetry.pace import Pace

STALLED_SECONDS = 600.0
"""A client that takes nothing of its answer for so long has gone without a word."""
FREE_BYTES = 32 * 1024
"""Half of what asyncio buffers before a writer has to wait."""

MAX_ANSWER_EVENT_BYTES = 1024 * 1024
"""Of an answer that is no stream and becomes an event: mostly an error. What is beyond it is left out."""

WriteEvent = Callable[[int, bytes], bytes]
"""The event that stands for an upstream's answer of some status, which is no stream."""


class Listener(Protocol):
    """Reads along with an answer, chunk by chunk. It raises nothing."""

    def feed(self, chunk: bytes, arrived_at: float) -> None:
        """Take in the next bytes, and when they had come."""

    def tell_pace(self) -> Pace:
        """When the text of a stream came, as far as it has come."""

    def finish(self) -> None:
        """The answer has ended."""


class Reply:
    """The answer to one client: one head at most, then its body; and how that went.

    `response` is the answer as it was begun, None before that. `status` is the upstream's, or that of our own error; 0
    until one of them is known. Times are of the monotonic clock, 0.0 if there was no such moment. `pace` is that of a
    stream's text. `broken`: the upstream's answer broke off. `client_left`: the client did not take its answer.
    """

    __slots__ = ("broken", "client_left", "last_byte_at", "pace", "request", "response", "status")

    def __init__(self, request: web.BaseRequest) -> None:
        self.request = request
        self.response: PlainResponse | None = None
        self.status = 0
        self.last_byte_at = 0.0
        self.pace = Pace()
        self.broken = False
        self.client_left = False

    @property
    def is_stream(self) -> bool:
        """Whether a stream of events has been begun: an error may have that type, too, and is no stream."""
        begun = self.response
        return begun is not None and begun.status == 200 and begun.content_type == "text/event-stream"

    @property
    def is_taken(self) -> bool:
        """Whether the client has taken everything so far."""
        transport = self.request.transport
        return transport is not None and not transport.get_write_buffer_size()

    async def begin(self, response: PlainResponse) -> PlainResponse:
        """Send the head of the answer."""
        if self.request.version < HttpVersion11 and "Content-Length" not in response.headers:
            response.force_close()  # its end is the connection's
        self.response = response
        await response.prepare(self.request)
        return response

    async def write(self, chunk: bytes) -> None:
        """Write a chunk of the body. Raises ConnectionError or TimeoutError if the client has left or reads no more."""
        response, transport = self.response, self.request.transport
        if response is None:
            message = "the answer has not been begun"
            raise RuntimeError(message)
        # A client that has taken everything so far is not waited for: the chunk goes into the socket, or the buffer.
        waits = transport is None or len(chunk) > FREE_BYTES or transport.get_write_buffer_size() > 0
        try:
            if not waits:
                response.write_at_once(chunk)
                return
            async with asyncio.timeout(STALLED_SECONDS):
                await response.write(chunk)
        except (ConnectionError, TimeoutError):
            self.client_left = True
            raise

    def write_at_once(self, chunk: bytes) -> bool:
        """Write a chunk of the body, and wait for nothing; whether the client has taken everything so far.

        Raises ConnectionError if the client has left.
        """
        response, transport = self.response, self.request.transport
        if response is None or transport is None:
            self.client_left = True
            raise ConnectionResetError
        try:
            response.write_at_once(chunk)
        except ConnectionError:
            self.client_left = True
            raise
        return not transport.get_write_buffer_size()

    async def wait_for_client(self) -> None:
        """Wait until the client has taken most of what it was sent; no time if it has.

        Raises ConnectionError or TimeoutError if it has left or reads no more.
        """
        if self.is_taken:
            return
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await self.request.writer.drain()
        except (ConnectionError, TimeoutError):
            self.client_left = True
            raise

    def reset(self) -> None:
        """End the connection so that the client notices: the end looks regular if no length was announced."""
        if self.request.transport is not None:
            reset_transport(self.request.transport)


def make_response(answer: aiohttp.ClientResponse, added: Headers) -> PlainResponse:
    """A response with the answer's status and headers, and the headers `added`; it has no body yet."""
    headers = CIMultiDict([*answer_headers(answer.raw_headers), *added])
    reason = answer.reason if is_sendable(answer.reason or "") else None
    return PlainResponse(status=answer.status, reason=reason, headers=headers)


async def begin_answer(
    reply: Reply, answer: aiohttp.ClientResponse, added: Headers, *, holds_head: bool = False
) -> PlainResponse:
    """Pass on the answer's status and headers, and the headers `added`. Raises UpstreamInvalidError.

    The head goes out together with the first chunk if `holds_head` says so.
    """
    if answer.status < 200:
        message = f"the upstream answered with status {answer.status}, which ends no request; check upstream.base_url"
        raise UpstreamInvalidError(message)
    reply.status = answer.status
    response = make_response(answer, added)
    if holds_head:
        response.hold_head()
    return await reply.begin(response)


async def replace_answer(
    reply: Reply, answer: aiohttp.ClientResponse, added: Headers, body: bytes
) -> web.StreamResponse:
    """Pass the answer on with another body, which is JSON."""
    reply.status = answer.status
    reply.last_byte_at = time.monotonic()
    response = make_response(answer, added)
    for name in ("Content-Length", "Content-Encoding", "Content-Type"):
        response.headers.popall(name, None)
    response.content_type = "application/json"
    response.content_length = len(body)
    await reply.begin(response)
    with suppress(ConnectionError):  # the client has left
        await response.write_eof(body)
    return response


async def relay_answer(
    reply: Reply,
    answer: aiohttp.ClientResponse,
    added: Headers = (),
    *,
    held: bytes = b"",
    tap: Listener | None = None,
    write_event: WriteEvent | None = None,
) -> web.StreamResponse:
    """Pass the answer on: its head, unless the reply has one, with the headers `added`; then its body.

    `held` are the first bytes of the body, if they were read already. `write_event` is needed if an event stream may
    have been begun: an answer that is no stream becomes one event of it. Raises UpstreamInvalidError.
    """
    reply.status = answer.status
    is_stream = answer.status == 200 and answer.content_type == "text/event-stream"
    holds_head = bool(held) or (answer.content.is_eof() and not is_stream)
    response = reply.response or await begin_answer(reply, answer, added, holds_head=holds_head)
    event = bytearray() if reply.is_stream and not is_stream and write_event is not None else None
    try:
        await _pass_body(reply, answer, held, tap, event)
    except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, TimeoutError):
        reply.broken = not reply.client_left
        reply.reset()
        return response
    finally:
        if is_stream and tap is not None:
            reply.pace = tap.tell_pace()
    reply.last_byte_at = time.monotonic()
    await response.write_eof(b"" if event is None or write_event is None else write_event(answer.status, bytes(event)))
    if tap is not None:
        tap.finish()
    return response


async def _pass_body(
    reply: Reply,
    answer: aiohttp.ClientResponse,
    held: bytes,
    tap: Listener | None,
    event: bytearray | None,
) -> None:
    """The body, chunk by chunk, to the client, or into an `event`. Raises aiohttp's errors where it was cut."""
    upstream = answer.connection.protocol if answer.connection is not None else None
    content, monotonic = answer.content, time.monotonic
    follows = event is None and reply.is_stream

    def pass_on(chunk: bytes) -> bool:
        arrived, is_free = monotonic(), reply.write_at_once(chunk)
        if tap is not None:
            tap.feed(chunk, arrived)
        return is_free

    while chunk := held or await content.readany():
        held, arrived = b"", monotonic()
        if event is None:
            await reply.write(chunk)
        else:
            event += chunk[: MAX_ANSWER_EVENT_BYTES - len(event)]
        if tap is not None:
            tap.feed(chunk, arrived)
        if follows and not content.is_eof() and reply.is_taken:
            await follow(answer, pass_on)
            await reply.wait_for_client()
    if upstream is not None and isinstance(upstream.exception(), OSError) and _ends_with_connection(answer):
        raise aiohttp.ClientPayloadError  # by a reset, which aiohttp takes for an end


def _ends_with_connection(answer: aiohttp.ClientResponse) -> bool:
    """Whether only the connection's end tells where the body ends."""
    return "Content-Length" not in answer.headers and "Transfer-Encoding" not in answer.headers
