"""aiohttp's connections to upstreams, and to proxies before them.

Law: nobody gets an answer that was not meant for them. What a proxy does is told apart from what the upstream does.
"""

import asyncio
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection

from proxy.http.aiohttp_fixes.protocol import UpstreamProtocol


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

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._factory: Any = partial(UpstreamProtocol, loop=self._loop)

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
        protocol = UpstreamProtocol(self._loop)
        underlying_transport.set_protocol(protocol)
        protocol.connection_made(underlying_transport)
        return underlying_transport, protocol
