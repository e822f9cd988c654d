"""Workarounds for aiohttp's tunnels and TLS.

Law: TLS learns of the failure of a connection when everything that has arrived is decrypted. What goes wrong before
a tunnel is open is told from what its upstream does.
"""

import asyncio
import os
import ssl
from typing import Any

import aiohttp
from aiohttp import connector as aiohttp_connector
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection

from trimtab.proxy.config.network import make_context

READ_BYTES = 64 * 1024  # Read at once of what is left in a connection. Chosen: a whole error.


class Secured(asyncio.BufferedProtocol):
    """Stands between a connection and its TLS: what has arrived is decrypted before TLS learns of a failure."""

    def __init__(self, transport: Any, protocol: Any) -> None:
        tls = transport.get_protocol()
        for name in ("get_buffer", "buffer_updated", "eof_received", "pause_writing", "resume_writing"):
            setattr(self, name, getattr(tls, name))
        self._tls, self._protocol = tls, protocol
        protocol.secured = self
        transport.set_protocol(self)

    def read_rest(self, found: Any) -> None:
        while found.fileno() >= 0 and (size := os.readv(found.fileno(), (self.get_buffer(READ_BYTES),))):
            self.buffer_updated(size)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._protocol.read_rest(exc)
        self._tls.connection_lost(exc)


class TunnelError(aiohttp.ClientError):
    """A forward proxy did not answer CONNECT: it closed the connection or sent no HTTP. See the cause."""


class TunnelTimeoutError(Exception):
    """Cause of a timeout: the forward proxy had opened the tunnel, but the upstream was silent in it."""


class _TunnelResponse(aiohttp.ClientResponse):
    """The response to CONNECT. Any 2xx opens the tunnel (RFC 9110 section 9.3.6); aiohttp accepts only 200."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        await super().start(connection)
        if 200 <= self.status < 300:
            self.status = 200
        return self


class Request(ClientRequest):
    """A request that, with a `server_hostname`, asks its forward proxy for a tunnel even without TLS.

    A WebSocket needs a tunnel, because no HTTP follows its handshake (RFC 6455 section 4.1). `server_hostname` is part
    of aiohttp's connection key, so a tunnel is never used for requests in absolute form.
    """

    def is_ssl(self) -> bool:
        """Whether there is TLS or a tunnel. If so, the request target is in origin form."""
        return super().is_ssl() or (self.proxy is not None and self.server_hostname is not None)


class TunnelConnector(aiohttp.TCPConnector):
    """Opens connections, with TLS or in tunnels."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._factory: Any
        self._usual_tls: ssl.SSLContext | None = None

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 - aiohttp's
        if self._usual_tls is None and req.ssl is True and (req.is_ssl() or req.proxy is not None):
            # In a thread: reading the system's authorities takes a twentieth of a second.
            self._usual_tls = await asyncio.to_thread(make_context, None, None, None)
        return await super()._create_connection(req, traces, timeout)

    def _get_ssl_context(self, req: Any) -> ssl.SSLContext | None:
        """As in aiohttp, but what it makes when it is imported is made when it is needed (see cli/main.py)."""
        context = super()._get_ssl_context(req)
        if context is not aiohttp_connector._SSL_CONTEXT_VERIFIED:  # noqa: SLF001 - it has no other name
            return context
        if self._usual_tls is None:
            self._usual_tls = make_context(None, None, None)
        return self._usual_tls

    def _update_proxy_auth_header_and_build_proxy_req(self, req: Any) -> Any:
        request = super()._update_proxy_auth_header_and_build_proxy_req(req)
        request.response_class = _TunnelResponse
        return request

    async def _create_proxy_connection(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 - aiohttp's
        """As aiohttp does, but an error before the tunnel is open becomes a TunnelError."""
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

    async def _wrap_create_connection(self, *args: Any, **how: Any) -> Any:
        """As aiohttp does, but TLS is started as in a tunnel, which tells what lies below it."""
        is_secure, how["ssl"] = how["ssl"] is not None, None
        how["server_hostname"], name = None, how["server_hostname"]
        transport, protocol = await super()._wrap_create_connection(*args, **how)
        if not is_secure:
            return transport, protocol
        req = how["req"]
        req.server_hostname = name
        return await self._secure(transport, req, how["timeout"], how.get("client_error", aiohttp.ClientConnectorError))

    async def _secure(self, transport: Any, *how: Any) -> Any:
        made: tuple[Any, Any] = await super()._start_tls_connection(transport, *how)
        Secured(transport, made[1])
        return made

    async def _start_tls_connection(
        self,
        underlying_transport: Any,
        req: Any,
        timeout: Any,  # noqa: ASYNC109 - aiohttp's
        client_error: type[Exception] = aiohttp.ClientConnectorError,
    ) -> Any:
        """TLS in the tunnel; none if the upstream's URL is http."""
        if req.url.scheme == "https":
            try:
                return await self._secure(underlying_transport, req, timeout, client_error)
            except asyncio.CancelledError as error:  # mostly by the timeout for the whole connection
                error.__cause__ = TunnelTimeoutError()
                raise
        protocol = self._factory()
        underlying_transport.set_protocol(protocol)
        protocol.connection_made(underlying_transport)
        return underlying_transport, protocol
