"""Workarounds for aiohttp's client: its connections, tunnels, and plain requests.

Law: nobody gets a response to another request, and nobody waits for a response that can no longer come. The fast path
for plain requests gives the same bytes and the same errors as aiohttp's session. Requests that are not plain (a forward
proxy, an upgrade, a body that is still to arrive) use the session.
"""

import asyncio
import select
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp
import msgspec
from aiohttp import connector as aiohttp_connector
from aiohttp import http_writer
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest, ConnectionKey, RequestInfo
from aiohttp.connector import Connection
from aiohttp.helpers import TimerNoop
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from trimtab.proxy.config.network import make_context
from trimtab.proxy.http.aiohttp_fixes.protocol import Secured, UpstreamProtocol

JOINED_BYTES = 16 * 1024  # A body up to this size is joined with its head. Chosen: copying so few bytes is cheap.
_TLS_SCHEMES = frozenset({"https", "wss"})
_NO_TIMER = TimerNoop()


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


def _has_news(protocol: Any) -> bool:
    """Whether an idle connection has unread input: bytes unasked for, or its end. A request on it would fail."""
    if protocol.poll is None:
        found = None if protocol.transport is None else protocol.transport.get_extra_info("socket")
        if found is None:
            return False
        protocol.poll = select.poll()
        protocol.poll.register(found.fileno(), select.POLLIN)
    return bool(protocol.poll.poll(0))


class Connector(aiohttp.TCPConnector):
    """Does not reuse a connection with bytes unasked for: they would be taken for another client's response."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._factory: Any = partial(UpstreamProtocol, loop=self._loop)
        self._usual_tls: ssl.SSLContext | None = None

    async def _get(self, key: Any, traces: Any) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            protocol: Any = connection._protocol  # noqa: SLF001 - a property costs a call
            if protocol is not None and not protocol.should_close and not _has_news(protocol):
                protocol.arrived = []
                return connection
            connection.close()
        return None

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
        protocol = UpstreamProtocol(self._loop)
        underlying_transport.set_protocol(protocol)
        protocol.connection_made(underlying_transport)
        return underlying_transport, protocol


class SendSettings(msgspec.Struct, frozen=True):
    """How requests to one upstream are sent: timeouts, and TLS in the form of aiohttp's `ssl` argument."""

    timeout: aiohttp.ClientTimeout
    tls: Any


async def send_plainly(
    session: aiohttp.ClientSession,
    url: URL,
    headers: CIMultiDict[str],
    body: tuple[bytes, ...],
    settings: SendSettings,
    on_sent: Callable[[], object] = lambda: None,
) -> aiohttp.ClientResponse:
    """Send a POST; returns the response, its body not read yet. `headers` must have the Content-Length of `body`.

    on_sent: called when the whole request is on its way. Raises the same errors as aiohttp's session.
    """
    connection = await _connect(session, url, settings)
    protocol: Any = connection._protocol  # noqa: SLF001
    try:
        protocol.set_response_params(
            timer=_NO_TIMER,
            read_until_eof=True,
            auto_decompress=False,
            read_timeout=settings.timeout.sock_read,
            read_bufsize=session._read_bufsize,  # noqa: SLF001 - the session has no public way to read these
            max_line_size=session._max_line_size,  # noqa: SLF001
            max_field_size=session._max_field_size,  # noqa: SLF001
            max_headers=session._max_headers,  # noqa: SLF001
        )
        sent: CIMultiDict[str] = CIMultiDict(Host=url.host_port_subcomponent or "")
        sent.extend(headers)
        head = http_writer._serialize_headers(f"POST {url.raw_path_qs} HTTP/1.1", sent)  # noqa: SLF001
        _write(protocol, head, body)
        on_sent()
        return await _make_response(session, url, sent, protocol).start(connection)
    except OSError as error:
        connection.close()
        if isinstance(error, TimeoutError | aiohttp.ClientError):
            raise
        raise aiohttp.ClientOSError(*error.args) from error
    except BaseException:
        connection.close()
        raise


async def _connect(session: aiohttp.ClientSession, url: URL, settings: SendSettings) -> Connection:
    connector: Any = session._connector  # noqa: SLF001 - as below: a property costs a call
    if connector is None or connector._closed:  # noqa: SLF001
        raise RuntimeError("Session is closed")
    is_tls = url.scheme in _TLS_SCHEMES
    key = ConnectionKey(url.raw_host or "", url.port, is_tls, settings.tls, None, None, None, None)
    kept: Connection | None = await connector._get(key, [])  # noqa: SLF001
    if kept is not None:
        return kept
    request_class: type[ClientRequest] = session._request_class  # noqa: SLF001
    asked = request_class("POST", url, ssl=settings.tls, loop=session._loop, session=session)  # noqa: SLF001
    try:
        made: Connection = await connector.connect(asked, traces=[], timeout=settings.timeout)
    except TimeoutError as error:
        raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {url}") from error
    return made


def _write(protocol: ResponseHandler, head: bytes, body: tuple[bytes, ...]) -> None:
    """Send a request. The read timeout starts when the upstream has taken all of it."""
    transport = protocol.transport
    if transport is None or transport.is_closing():
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
    if sum(map(len, body)) <= JOINED_BYTES:
        transport.write(b"".join((head, *body)))
    else:
        transport.writelines((head, *body))
    if not protocol._paused:  # noqa: SLF001
        protocol.start_timeout()


def _make_response(
    session: aiohttp.ClientSession, url: URL, headers: CIMultiDict[str], protocol: ResponseHandler
) -> aiohttp.ClientResponse:
    return aiohttp.ClientResponse(
        "POST",
        url,
        writer=None,
        continue100=None,
        timer=_NO_TIMER,
        request_info=tuple.__new__(RequestInfo, (url, "POST", CIMultiDictProxy(headers), url)),
        traces=[],
        loop=session._loop,  # noqa: SLF001
        session=session,
        stream_writer=http_writer.StreamWriter(protocol, session._loop),  # noqa: SLF001
    )
