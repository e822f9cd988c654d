"""Workarounds for aiohttp's server, and for how it writes the bytes of heads.

Law: the bytes of a head pass unchanged. aiohttp adds no header to a response except `Date` and those that frame the
body. A connection ends if part of its input is lost.
"""

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from aiohttp import ClientConnectionResetError, HttpVersion10, HttpVersion11, hdrs, http_writer, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import must_be_empty_body, rfc822_formatted_time, should_remove_content_length
from multidict import CIMultiDict

_write_plainly = http_writer._serialize_headers  # noqa: SLF001 - aiohttp writes every request and response head with it
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with zero seconds: closing the socket sends a TCP reset


def loses_what_follows(request: web.BaseRequest) -> bool:
    """Whether aiohttp drops the bytes behind a request (an upgrade). Then the connection must end with the response."""
    headers = request.headers
    return "Upgrade" in headers and headers["Upgrade"].lower() != "websocket"


class Keeper(Protocol):
    """Chunks that are kept to be read together, with the times at which they arrived; and the bytes that still fit."""

    unread: list[tuple[bytes, float]]
    room: int


class ChunkReader(Protocol):
    """Reads a copy of a body. It never raises."""

    @property
    def keeper(self) -> Keeper | None:
        """What keeps chunks to be read together; None if `feed` must get each."""

    def feed(self, chunk: bytes, arrived_at: float) -> None:
        """Take the next bytes, and the time at which they arrived."""


class PlainResponse(web.StreamResponse):
    """A response to which aiohttp adds no header except `Date` and those that frame the body."""

    def hold_head(self) -> None:
        """Send the head together with the first bytes of the body, not before."""
        self._send_headers_immediately = False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the head, or keep it for the first bytes of the body after `hold_head`."""
        if self._payload_writer is not None or self._eof_sent:
            return self._payload_writer
        if not request.content.is_eof() or loses_what_follows(request):
            self.force_close()
        self._must_be_empty_body = must_be_empty_body(request.method, self._status)
        self._req, writer = request, request.writer
        self._payload_writer = writer
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        is_newest = request.version >= HttpVersion11
        self._frame_body(request, writer, is_newest=is_newest)
        self._frame_connection(request, is_newest=is_newest)
        version = request.version
        await writer.write_headers(f"HTTP/{version[0]}.{version[1]} {self._status} {self._reason}", self._headers)
        if self._send_headers_immediately:
            writer.send_headers()
        return writer

    def _frame_body(self, request: web.BaseRequest, writer: AbstractStreamWriter, *, is_newest: bool) -> None:
        headers = self._headers
        told = headers.get(hdrs.CONTENT_LENGTH)
        writer.length = length = None if told is None else int(told)
        if self._must_be_empty_body:
            headers.popall(hdrs.TRANSFER_ENCODING, None)
            if length is not None and should_remove_content_length(request.method, self._status):
                del headers[hdrs.CONTENT_LENGTH]
        elif length is None and is_newest:
            writer.enable_chunking()
            headers[hdrs.TRANSFER_ENCODING] = "chunked"
        elif length is None:
            self._keep_alive = False

    def _frame_connection(self, request: web.BaseRequest, *, is_newest: bool) -> None:
        """Set `Date`, and `Connection` to say whether the connection ends with this response."""
        headers = self._headers
        if hdrs.DATE not in headers:
            headers[hdrs.DATE] = rfc822_formatted_time()
        if hdrs.CONNECTION not in headers:
            if not self._keep_alive and is_newest:
                headers[hdrs.CONNECTION] = "close"
            elif self._keep_alive and request.version == HttpVersion10:
                headers[hdrs.CONNECTION] = "keep-alive"

    def write_at_once(self, chunk: bytes) -> bool:
        """Write a chunk, and a held head, without waiting. Whether the client has taken all. Raises ConnectionError."""
        writer: Any = self._payload_writer
        if writer is None:
            raise RuntimeError("the response has not been begun, or has ended")
        transport = writer._protocol.transport  # noqa: SLF001 - two calls fewer for each chunk
        if transport is None or transport.is_closing():
            raise ClientConnectionResetError("the client has left")
        if writer.length is not None:
            chunk = chunk[: writer.length]
            writer.length -= len(chunk)
        framed = b"%x\r\n%b\r\n" % (len(chunk), chunk) if writer.chunked else chunk
        if writer._headers_buf:  # noqa: SLF001 - the head is held
            framed, writer._headers_buf, writer._headers_written = writer._headers_buf + framed, None, True  # noqa: SLF001
        if framed:
            writer.buffer_size += len(framed)
            writer.output_size += len(framed)
            transport.write(framed)
        return not transport.get_write_buffer_size()

    def copier(self, reader: "ChunkReader | None", lose: Callable[[bytes], None]) -> Callable[[bytes], bool]:
        """As `write_at_once`, for a reader of the chunk, in one call. lose: gets the chunk at which the client left."""
        writer: Any = self._payload_writer
        keeper = None if reader is None else reader.keeper
        is_plain = writer.chunked and writer.length is None and not writer._headers_buf  # noqa: SLF001
        protocol, monotonic = writer._protocol, time.monotonic  # noqa: SLF001

        def copy(chunk: bytes) -> bool:
            arrived, transport, size = monotonic(), protocol.transport, len(chunk)
            if is_plain and transport is not None and not transport.is_closing():
                transport.write(b"%x\r\n%b\r\n" % (size, chunk))
                is_free = not transport.get_write_buffer_size()
            else:
                try:
                    is_free = self.write_at_once(chunk)
                except ConnectionError:
                    lose(chunk)
                    raise
            if keeper is not None and size <= keeper.room:
                keeper.unread.append((chunk, arrived))
                keeper.room -= size
            elif reader is not None:
                reader.feed(chunk, arrived)
            return is_free

        return copy


class OwnRequest(web.BaseRequest):
    """A request; the proxy's own responses to it do not name a library in `Server`."""

    @classmethod
    def make(cls, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> "OwnRequest":
        return cls(message, payload, protocol, writer, task, protocol._loop)  # noqa: SLF001 - asking for it costs a system call

    async def _prepare_hook(self, resp: web.StreamResponse) -> None:
        if not isinstance(resp, PlainResponse):
            resp.headers.popall("Server", None)


def reset_transport(transport: asyncio.Transport) -> None:
    """End a connection with a TCP reset, so that the other side sees an error."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):  # the socket may be closed already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()


def keep_header_bytes() -> None:
    """Make aiohttp, in this process, write header bytes beyond UTF-8 (Node sends Latin-1), which it would drop."""
    http_writer._serialize_headers = _serialize  # noqa: SLF001 - aiohttp has no public hook for it


def _serialize(status_line: str, headers: CIMultiDict[str]) -> bytes:
    """The head of a request or response. Raises ValueError for control characters."""
    written = _write_plainly(status_line, headers)
    if status_line.isascii() and "".join(headers.values()).isascii():
        return written
    lines = [status_line, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")
