"""Answers of ours through aiohttp's server.

Law: an answer has no header that the upstream did not send, but for `Date` and what frames the body. What cannot be
read of a connection ends it.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any

from aiohttp import HttpVersion10, HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import must_be_empty_body, rfc822_formatted_time, should_remove_content_length

_RESET = struct.pack("ii", 1, 0)
"""Linger for no time: closing sends a reset."""


def loses_what_follows(request: web.BaseRequest) -> bool:
    """Whether what came at once behind a request is lost: the parser drops it behind an upgrade that it does not know.

    Then the connection must end with the answer, so that the client asks again.
    """
    return request.headers.get("Upgrade", "websocket").lower() != "websocket"


class PlainResponse(web.StreamResponse):
    """A response with no header that the upstream did not send, but for `Date` and what frames the body."""

    def hold_head(self) -> None:
        """Send the head together with the first bytes of the body, not before."""
        self._send_headers_immediately = False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the head."""
        if self._payload_writer is not None or self._eof_sent:
            return self._payload_writer
        if not request.content.is_eof() or loses_what_follows(request):
            self.force_close()
        self._must_be_empty_body = must_be_empty_body(request.method, self._status)
        self._req, writer = request, request.writer
        self._payload_writer = writer
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        self._frame(request, writer)
        version = request.version
        await writer.write_headers(f"HTTP/{version[0]}.{version[1]} {self._status} {self._reason}", self._headers)
        if self._send_headers_immediately:
            writer.send_headers()
        return writer

    def _frame(self, request: web.BaseRequest, writer: AbstractStreamWriter) -> None:
        """Say where the body ends, and whether the connection does.

        As aiohttp does it, but for the headers that it would make up.
        """
        headers, is_newest = self._headers, request.version >= HttpVersion11
        writer.length = length = self.content_length
        if self._must_be_empty_body:
            headers.popall(hdrs.TRANSFER_ENCODING, None)
            if length is not None and should_remove_content_length(request.method, self._status):
                del headers[hdrs.CONTENT_LENGTH]
        elif length is None and is_newest:
            writer.enable_chunking()
            headers[hdrs.TRANSFER_ENCODING] = "chunked"
        elif length is None:
            self._keep_alive = False
        if hdrs.DATE not in headers:
            headers[hdrs.DATE] = rfc822_formatted_time()
        if hdrs.CONNECTION not in headers:
            if not self._keep_alive and is_newest:
                headers[hdrs.CONNECTION] = "close"
            elif self._keep_alive and request.version == HttpVersion10:
                headers[hdrs.CONNECTION] = "keep-alive"


class OwnRequest(web.BaseRequest):
    """A request whose answer, if it is our own, names no library in `Server`."""

    @classmethod
    def make(cls, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> "OwnRequest":
        """As aiohttp's server has its requests made."""
        return cls(message, payload, protocol, writer, task, asyncio.get_running_loop())

    async def _prepare_hook(self, resp: web.StreamResponse) -> None:
        if not isinstance(resp, PlainResponse):
            resp.headers.popall("Server", None)


def reset_transport(transport: asyncio.Transport) -> None:
    """End a connection so that the other side notices."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):  # it is gone already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()
