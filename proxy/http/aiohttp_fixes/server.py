"""Answers of ours through aiohttp's server.

Law: an answer has no header that the upstream did not send, but for `Date` and what frames the body. What cannot be
read of a connection ends it.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

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
        if loses_what_follows(request) or not request.content.is_eof():
            self.force_close()
        return await super().prepare(request)

    async def _prepare_headers(self) -> None:
        given = {"content-type", "server"} & {name.lower() for name in self.headers}
        await super()._prepare_headers()
        for name in {"content-type", "server"} - given:
            self.headers.popall(name, None)


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
