"""Passes the upstream's response to the client, chunk by chunk.

Law: each chunk is sent at once and unchanged; the tap reads a copy. A response that breaks off never looks complete to
the client.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

import aiohttp
import msgspec
from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from trimtab.proxy.http.aiohttp_fixes.client import follow
from trimtab.proxy.http.aiohttp_fixes.server import ChunkReader, PlainResponse, reset_transport
from trimtab.proxy.http.content_coding import Reader, read_along
from trimtab.proxy.http.credentials import KnownNames
from trimtab.proxy.http.errors import UpstreamInvalidError
from trimtab.proxy.http.headers import CONNECTION, HOP_BY_HOP, OWN_PREFIX, Headers, drop_hop_by_hop

STALLED_SECONDS = 600.0
"""A client that takes nothing so long is reset (server/connections.py). Chosen: no working one pauses that long."""
FREE_BYTES = 32 * 1024  # A chunk up to this size is written without waiting. Chosen: half of asyncio's buffer limit.

EVENTS = "text/event-stream"
EVENTS_OR_UNNAMED = (EVENTS, "application/octet-stream", "text/plain")
"""Also what a stream without a content type has. Source: aiohttp, and Fetch, which names a text so. ChatGPT's server
sends none (KarpelesLab/teamclaude#456)."""
LAST_STEPS = 4  # In which a coded response is decoded after its client has left. Chosen: some milliseconds.
MAX_ANSWER_EVENT_BYTES = 1024 * 1024  # Of a response that becomes one event. Chosen: it is mostly an error.

WriteEvent = Callable[[int, bytes], bytes]  # The event for a whole response, from its status and body

MIN_SECONDS = 0.05  # A text in less time has no rate. Chosen: it would show how fast buffers are emptied.


class Pace(msgspec.Struct, frozen=True):
    """When the model's text arrived. A rate that cannot be known is None, and an impossible one is never reported.

    first_at, last_at: time of the first and the last text on the monotonic clock; 0.0 if there is none.
    first_chars: characters of the first chunk with text. It is left out of the rate, because the start of its writing
        is not known.
    """

    first_at: float = 0.0
    last_at: float = 0.0
    first_chars: int = 0
    chars: int = 0

    def tokens_per_second(self, tokens: int) -> float | None:
        """The rate of a text with this many tokens.

        None if the text came in one chunk or within MIN_SECONDS. None also if it has fewer characters than tokens: then
        most tokens belong to something that was not sent, such as hidden reasoning.
        """
        seconds = self.last_at - self.first_at
        late_chars = self.chars - self.first_chars
        if not late_chars or seconds < MIN_SECONDS or not 0 < tokens <= self.chars:
            return None
        return tokens * late_chars / self.chars / seconds


class Listener(ChunkReader, Protocol):
    """Reads a copy of a response, chunk by chunk. It never raises."""

    def tell_pace(self) -> Pace:
        """When the text of a stream arrived, so far."""

    def has_ended(self) -> bool:
        """Whether a stream has said that it is complete."""

    def finish(self, *, is_cut: bool) -> bool:
        """Called once, at the end; `is_cut`: the body had not ended then. Returns whether the response is complete."""


class Reply:
    """The response to one client: at most one head, then the body; and how sending it went.

    event_kinds: the content types of an event stream: more of them if the request asks for one.
    is_stream: it is an event stream. An error of that content type does not count.
    status: the upstream's status, or that of the proxy's own error; 0 until it is known.
    last_byte_at: seconds of the monotonic clock; 0.0 if the client did not get the whole answer.
    missed: the piece of the body at which it left.
    adopt: makes events that end the stream out of those that were written for a stream of their own.
    """

    __slots__ = (
        "adopt",
        "broken",
        "client_left",
        "event_kinds",
        "is_stream",
        "last_byte_at",
        "missed",
        "pace",
        "request",
        "response",
        "status",
    )

    def __init__(self, request: web.BaseRequest) -> None:
        self.request = request
        self.response: PlainResponse | None = None
        self.event_kinds: tuple[str, ...] = (EVENTS,)
        self.is_stream = False
        self.status = 0
        self.last_byte_at = 0.0
        self.pace = Pace()
        self.broken = False
        self.client_left = False
        self.missed = b""
        self.adopt: Callable[[bytes], bytes] = bytes

    @property
    def is_taken(self) -> bool:
        transport = self.request.transport
        return transport is not None and not transport.get_write_buffer_size()

    async def begin(self, response: PlainResponse, *, is_stream: bool | None = None) -> PlainResponse:
        """Send the head. is_stream: whether it is an event stream; None to see it in its headers."""
        if self.request.version < HttpVersion11 and "Content-Length" not in response.headers:
            response.force_close()  # HTTP/1.0 has no chunks: the end of the connection marks the end of the body
        self.response = response
        if is_stream is None:
            is_stream = response.status == 200 and response.content_type == EVENTS
        self.is_stream = is_stream
        await response.prepare(self.request)
        return response

    async def write(self, chunk: bytes) -> None:
        """Write a chunk. Raises ConnectionError if the client has left, or takes nothing for STALLED_SECONDS."""
        response, transport = self.response, self.request.transport
        if response is None:
            raise RuntimeError("the response has not been begun")
        # No need to wait if the client has taken everything so far: the socket or the buffer takes the chunk.
        waits = transport is None or len(chunk) > FREE_BYTES or transport.get_write_buffer_size() > 0
        try:
            if not waits:
                response.write_at_once(chunk)
                return
            await response.write(chunk)
        except (ConnectionError, asyncio.CancelledError):
            self.lose(chunk)
            raise

    def lose(self, chunk: bytes) -> None:
        self.client_left, self.missed = True, chunk

    async def wait_for_client(self) -> None:
        """Wait until the client has taken most. Raises ConnectionError if it has left, or stalls STALLED_SECONDS."""
        if self.is_taken:
            return
        try:
            await self.request.writer.drain()
        except ConnectionError:
            self.client_left = True
            raise

    def reset(self) -> None:
        """Reset the connection. If it were closed instead, a body without a Content-Length would look complete."""
        if self.request.transport is not None:
            reset_transport(self.request.transport)


def _name_answered(raw: bytes) -> str:
    """An upstream's header as it is passed on; CONNECTION; empty for those of this hop, and trimtab's own names."""
    name = raw.decode("utf-8", "surrogateescape")
    lower = name.lower()
    if lower == CONNECTION:
        return CONNECTION
    is_dropped = lower in HOP_BY_HOP or lower[: len(OWN_PREFIX)].replace("_", "-") == OWN_PREFIX
    return "" if is_dropped else name


_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ANSWER_NAMES = KnownNames[bytes, str](_name_answered)


def answer_headers(raw_headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The upstream's headers that the client receives: not hop-by-hop, not ours, and without control characters."""
    headers: Headers = [
        (name, value.decode("utf-8", "surrogateescape")) for raw, value in raw_headers if (name := _ANSWER_NAMES[raw])
    ]
    for name, _ in headers:
        if name is CONNECTION:  # it may name further headers of this hop
            headers = drop_hop_by_hop(headers)
            break
    if is_sendable("".join([value for _, value in headers])):
        return headers
    return [(name, value) for name, value in headers if is_sendable(value)]


def is_sendable(text: str) -> bool:
    """Whether a header's value or a reason phrase has no control character, which could split the response."""
    return _CONTROL.search(text) is None


def make_response(answer: aiohttp.ClientResponse, added: Headers) -> PlainResponse:
    headers = CIMultiDict([*answer_headers(answer.raw_headers), *added])
    reason = answer.reason if is_sendable(answer.reason or "") else None
    return PlainResponse(status=answer.status, reason=reason, headers=headers)


async def begin_answer(
    reply: Reply, answer: aiohttp.ClientResponse, added: Headers, *, is_stream: bool, holds_head: bool = False
) -> PlainResponse:
    """Pass on status and headers; with `holds_head`, with the first chunk. Raises UpstreamInvalidError."""
    if answer.status < 200:
        message = f"the upstream answered with status {answer.status}, which is not final; check upstream.base_url"
        raise UpstreamInvalidError(message)
    reply.status = answer.status
    response = make_response(answer, added)
    if holds_head:
        response.hold_head()
    return await reply.begin(response, is_stream=is_stream)


async def replace_answer(
    reply: Reply, answer: aiohttp.ClientResponse, added: Headers, body: bytes
) -> web.StreamResponse:
    """Pass on the upstream's status and headers, with the JSON `body` in place of its own."""
    response = make_response(answer, added)
    for name in ("Content-Encoding", "Content-Type"):
        response.headers.popall(name, None)
    response.content_type = "application/json"
    return await send_whole(reply, response, body)


async def send_whole(reply: Reply, response: PlainResponse, body: bytes) -> web.StreamResponse:
    reply.status = response.status
    reply.last_byte_at = time.monotonic()
    response.headers.popall("Content-Length", None)
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
    """Pass on the upstream's response: its head with the headers `added`, unless the reply has a head, and its body.

    held: first bytes of the body, if they were read before. Raises UpstreamInvalidError.
    write_event: needed if the reply may have begun an event stream; a non-stream response then becomes one event.
    """
    reply.status = answer.status
    is_stream = answer.status == 200 and answer.content_type in reply.event_kinds
    reader = read_along(answer.headers) if "Content-Encoding" in answer.headers else None
    was_plain = reply.response is not None and "Content-Encoding" not in reply.response.headers
    copy = tap if tap is None or reader is None or was_plain else _Decoding(tap, reader)
    holds_head = bool(held) or (answer.content.is_eof() and not is_stream)
    event = bytearray() if reply.is_stream and not is_stream and write_event else None
    try:
        response = reply.response or await begin_answer(
            reply, answer, added, is_stream=is_stream, holds_head=holds_head
        )
        try:
            if event is not None or (reader is not None and was_plain):
                await _pass_text(reply, answer, held, reader, tap, event)
            else:
                await _pass_body(reply, answer, held, copy)
        except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, TimeoutError):
            reply.broken = not reply.client_left
            reply.reset()
            return response
        reply.last_byte_at = time.monotonic()
        await _end(response, b"" if event is None else _tell(reply, answer.status, event, write_event))
        return response
    finally:
        if copy is not None:
            _stop_listening(reply, copy, is_stream=is_stream)


def _tell(reply: Reply, status: int, event: bytearray, write_event: WriteEvent | None) -> bytes:
    return b"" if write_event is None else reply.adopt(write_event(status, bytes(event)))


async def _end(response: PlainResponse, rest: bytes) -> None:
    try:  # noqa: SIM105 - it costs three calls more
        await response.write_eof(rest)
    except ConnectionError:  # the client has left
        pass


def _stop_listening(reply: Reply, tap: Listener, *, is_stream: bool) -> None:
    """Let the tap read the rest. A client that leaves when the answer has said that it is complete has got it."""
    if reply.missed:
        reply.last_byte_at = time.monotonic() if tap.has_ended() else 0.0
        tap.feed(reply.missed, time.monotonic())
    is_whole = tap.finish(is_cut=not reply.last_byte_at)
    if is_stream:
        reply.pace = tap.tell_pace()
    if is_whole and not (reply.last_byte_at or reply.client_left or reply.broken):
        reply.last_byte_at = time.monotonic()
    reply.client_left = reply.client_left and not reply.last_byte_at


class _Decoding:
    def __init__(self, listener: Listener, reader: Reader) -> None:
        self._listener = listener
        self._reader = reader
        self._arrived_at = 0.0

    @property
    def keeper(self) -> None:
        return None

    def feed(self, chunk: bytes, arrived_at: float) -> None:
        self._arrived_at = arrived_at
        self._listener.feed(self._reader.feed(chunk), arrived_at)

    async def catch_up(self) -> None:
        """Decode the rest, and let others work between the steps."""
        while self._reader.is_behind:
            await asyncio.sleep(0)
            self.feed(b"", self._arrived_at)

    def tell_pace(self) -> Pace:
        return self._listener.tell_pace()

    def has_ended(self) -> bool:
        return self._listener.has_ended()

    def finish(self, *, is_cut: bool) -> bool:
        """Called once, at the end. Only a client that leaves in a follow's midst leaves something to decode."""
        for _ in range(LAST_STEPS):
            if self._reader.is_behind:
                self.feed(b"", self._arrived_at)
        return self._listener.finish(is_cut=is_cut)


async def _pass_text(
    reply: Reply,
    answer: aiohttp.ClientResponse,
    held: bytes,
    reader: Reader | None,
    tap: Listener | None,
    event: bytearray | None,
) -> None:
    """Pass on what a body says, as a plain stream was promised; or collect it in `event`. Raises aiohttp's errors."""
    while chunk := held or await answer.content.readany():
        held, arrived = b"", time.monotonic()
        for text in (chunk,) if reader is None else reader.read_in_steps(chunk):
            if event is not None:
                event += text[: MAX_ANSWER_EVENT_BYTES - len(event)]
            elif text:
                await reply.write(text)
            if tap is not None:
                tap.feed(text, arrived)
            await asyncio.sleep(0)
        if reader is not None and reader.is_lost:
            raise aiohttp.ClientPayloadError


async def _pass_body(
    reply: Reply,
    answer: aiohttp.ClientResponse,
    held: bytes,
    tap: Listener | None,
) -> None:
    """Pass on the body to the client. Raises aiohttp's errors if the body breaks off."""
    # Strategy: wait for each piece as usual until the client has taken everything. From then on a stream is followed:
    # aiohttp's protocol hands over each piece as it is parsed, and no task is woken for it. As soon as the client lags,
    # or the body ends, the loop waits again, from where the follower has stopped.
    upstream = answer.connection.protocol if answer.connection is not None else None
    content, monotonic = answer.content, time.monotonic
    follows = reply.is_stream
    while chunk := held or (b"" if content.at_eof() else await content.readany()):  # a whole answer is held: no read
        held, arrived = b"", monotonic()
        await reply.write(chunk)
        if tap is not None:
            tap.feed(chunk, arrived)
        if isinstance(tap, _Decoding):
            await tap.catch_up()
        if follows and reply.response is not None and not content.is_eof() and reply.is_taken:
            await follow(answer, reply.response.copier(tap, reply.lose))
            await reply.wait_for_client()
    if upstream is not None and isinstance(upstream.exception(), OSError):
        _check_end(answer)


def _check_end(answer: aiohttp.ClientResponse) -> None:
    """The connection was reset; aiohttp takes that for the end of a body that only the connection's end marks."""
    if "Content-Length" not in answer.headers and "Transfer-Encoding" not in answer.headers:
        raise aiohttp.ClientPayloadError
