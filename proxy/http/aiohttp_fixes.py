"""Every repair of aiohttp, of its client and of its server.

Law: nobody gets an answer that was not meant for them, and no answer is waited for that can no longer come. The bytes
of a head cross as they are. Nothing else in the program but server/connections.py touches a private part of aiohttp.
"""

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import aiohttp
from aiohttp import http_writer, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from multidict import CIMultiDict

_RESET = struct.pack("ii", 1, 0)
"""Linger for no time: closing sends a reset."""
_write_plainly = http_writer._serialize_headers  # noqa: SLF001 - the one place where requests and responses are written


class TunnelError(aiohttp.ClientError):
    """A proxy was asked for a tunnel and did not answer: it hung up, or spoke no HTTP. The cause says which."""


class TunnelTimeoutError(Exception):
    """Stands among the causes of a time-out: the proxy had opened the tunnel, and the upstream was silent in it."""


class _TunnelResponse(aiohttp.ClientResponse):
    """The answer to CONNECT: any 2xx opens the tunnel (RFC 9110 section 9.3.6); aiohttp knows 200 alone."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Read the head."""
        await super().start(connection)
        if 200 <= self.status < 300:
            self.status = 200
        return self


class Request(ClientRequest):
    """A request that may ask for a tunnel through its proxy without TLS inside, by a `server_hostname`.

    A WebSocket needs one: what follows its handshake are no requests that a proxy could pass on (RFC 6455 section 4.1).
    The name is part of what tells connections apart, so that a tunnel is never used for requests in absolute form.
    """

    def is_ssl(self) -> bool:
        """Whether its proxy is asked for a tunnel, or there is TLS: then the target is in origin form."""
        return super().is_ssl() or (self.proxy is not None and self.server_hostname is not None)


class Connector(aiohttp.TCPConnector):
    """Keeps no connection on which the upstream has said something that nobody asked for.

    It would be taken for the answer to the next request, which is another client's, and so on from then on.
    """

    async def _get(self, key: Any, traces: Any) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()
        return None

    def _update_proxy_auth_header_and_build_proxy_req(self, req: Any) -> Any:
        request = super()._update_proxy_auth_header_and_build_proxy_req(req)
        request.response_class = _TunnelResponse
        return request

    async def _create_proxy_connection(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 - aiohttp's
        """As aiohttp does; what happens before the tunnel stands is told apart from what the upstream does."""
        try:
            return await super()._create_proxy_connection(req, traces, timeout)
        except aiohttp.ClientHttpProxyError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientResponseError) as error:
            raise TunnelError from error
        except aiohttp.ClientOSError as error:
            if isinstance(error, aiohttp.ClientConnectorError):
                raise
            raise TunnelError from error

    async def _start_tls_connection(
        self,
        underlying_transport: Any,
        req: Any,
        timeout: Any,  # noqa: ASYNC109 - aiohttp's
        client_error: type[Exception] = aiohttp.ClientConnectorError,
    ) -> Any:
        """TLS within the tunnel, or none where the upstream's address has none."""
        if req.url.scheme == "https":
            try:
                return await super()._start_tls_connection(underlying_transport, req, timeout, client_error)
            except asyncio.CancelledError as error:  # by the time-out of the whole connection, if by one
                error.__cause__ = TunnelTimeoutError()
                raise
        protocol = ResponseHandler(self._loop)
        underlying_transport.set_protocol(protocol)
        protocol.connection_made(underlying_transport)
        return underlying_transport, protocol


@contextmanager
def ending_with_connection(response: aiohttp.ClientResponse) -> Iterator[None]:
    """While the block runs, the answer's body breaks off where its connection has ended and it is not whole.

    aiohttp ends the connection over a chunk that cannot be read, and leaves the body's reader waiting for ever.
    """
    connection = response.connection
    if connection is None or connection.protocol is None:  # all of it has come
        yield
        return
    closed = connection.protocol.closed
    break_off = partial(_break_off, response.content)
    if closed is None:
        break_off(None)
    else:
        closed.add_done_callback(break_off)
    try:
        yield
    finally:
        if closed is not None:
            closed.remove_done_callback(break_off)
            # Kept once, however many answers this connection brings: an end that nobody asks about is no fault.
            closed.remove_done_callback(_take_note)
            closed.add_done_callback(_take_note)


def _take_note(closed: asyncio.Future[None]) -> None:
    if not closed.cancelled():
        closed.exception()


def _break_off(content: aiohttp.StreamReader, closed: asyncio.Future[None] | None) -> None:
    if closed is not None:
        _take_note(closed)  # it is told by the body's own
    if not content.is_eof() and content.exception() is None:
        content.set_exception(aiohttp.ClientPayloadError("the answer cannot be read further"))


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


def keep_header_bytes() -> None:
    """From now on, in this process, header bytes beyond UTF-8 cross unchanged; some clients send Latin-1 (Node does).

    aiohttp reads them as surrogate escapes and drops those when it writes.
    """
    http_writer._serialize_headers = _serialize  # noqa: SLF001 - see above


def _serialize(status_line: str, headers: CIMultiDict[str]) -> bytes:
    """The head of a request or response. Raises ValueError for control characters."""
    written = _write_plainly(status_line, headers)
    if status_line.isascii() and all(value.isascii() for value in headers.values()):
        return written
    lines = [status_line, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")
