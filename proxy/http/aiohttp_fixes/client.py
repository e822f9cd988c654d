"""aiohttp's client: its connections, proxies before them, and a plain request's short way.

Law: nobody gets an answer that was not meant for them, and none is waited for that can no longer come. What a plain
request is answered is what aiohttp's own session would make of it, to the byte and to the error; what is not plain (a
proxy, an upgrade, a body that is still to come) goes through that.
"""

import asyncio
import select
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
from aiohttp import http_writer
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest, ConnectionKey, RequestInfo
from aiohttp.connector import Connection
from aiohttp.helpers import TimerNoop
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from proxy.http.aiohttp_fixes.following import FollowedProtocol

JOINED_BYTES = 16 * 1024
"""A body up to this size is copied behind its head; a larger one is handed over beside it."""
_TLS_SCHEMES = frozenset({"https", "wss"})
_NO_TIMER = TimerNoop()


class UpstreamProtocol(FollowedProtocol):
    """A connection to an upstream.

    aiohttp starts a timer with each piece that is read. Here a piece moves a deadline, and one timer, which outlives
    requests, looks after it: so the time without a byte is as long as ever, and costs next to nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._deadline = self._fires_at = 0.0

    @property
    def should_close(self) -> bool:
        """As aiohttp's; a connection is not kept whose upstream has answered before it took the request."""
        return self._paused or super().should_close

    def data_received(self, data: bytes) -> None:
        """As aiohttp's; the follower takes what that has read."""
        super().data_received(data)
        if self.follower is not None:
            self.follower.look()

    def resume_writing(self) -> None:
        """The upstream takes the rest of a request: from now on it is waited for."""
        super().resume_writing()
        self.start_timeout()

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - as aiohttp's
        """As aiohttp's, which does not look whether reading has paused at all."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def connection_lost(self, exc: BaseException | None) -> None:
        """As aiohttp's; a body that is not whole then breaks off.

        aiohttp ends the connection over a chunk that cannot be read, and leaves the body's reader waiting for ever.
        """
        body = self._payload
        super().connection_lost(exc)
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError("the answer cannot be read further"))
        if self.follower is not None:
            self.follower.look()
        if self._closed is not None and not self._closed.cancelled():
            self._closed.exception()  # an end that nobody asks about is no fault

    def _reschedule_timeout(self) -> None:
        if not self._read_timeout:
            self._drop_timeout()
            return
        self._deadline = self._loop.time() + self._read_timeout
        if self._read_timeout_handle is None or self._deadline < self._fires_at:
            self._look_at(self._deadline)

    def _drop_timeout(self) -> None:
        self._deadline = 0.0
        if self.transport is None or self._connection_lost_called:
            super()._drop_timeout()

    def _look_at(self, seconds: float) -> None:
        super()._drop_timeout()
        self._fires_at = seconds
        self._read_timeout_handle = self._loop.call_at(seconds, self._look)

    def _look(self) -> None:
        self._read_timeout_handle = None
        if not self._deadline:
            return
        if self._loop.time() < self._deadline:
            self._look_at(self._deadline)
        else:
            self._on_read_timeout()
            if self.follower is not None:
                self.follower.look()


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


def _has_news(protocol: ResponseHandler) -> bool:
    """Whether something has come that was not read yet: what nobody asked for, or the end.

    An upstream that ends a connection behind an answer without a word would fail a request that is sent at once.
    """
    found = None if protocol.transport is None else protocol.transport.get_extra_info("socket")
    if found is None:
        return False
    look = select.poll()
    look.register(found.fileno(), select.POLLIN)
    return bool(look.poll(0))


class Connector(aiohttp.TCPConnector):
    """Keeps no connection on which the upstream has said something that nobody asked for.

    It would be taken for the answer to the next request, which is another client's, and so on from then on.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._factory: Any = partial(UpstreamProtocol, loop=self._loop)

    async def _get(self, key: Any, traces: Any) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close and not _has_news(protocol):
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


@dataclass(frozen=True, slots=True)
class Way:
    """How plain requests to one upstream travel: their timeouts, and TLS as aiohttp takes it."""

    timeout: aiohttp.ClientTimeout
    tls: Any


async def send_plainly(
    session: aiohttp.ClientSession, url: URL, headers: CIMultiDict[str], body: tuple[bytes, ...], way: Way
) -> aiohttp.ClientResponse:
    """The answer to a POST, its body not read yet. The body may be in pieces; `headers` tell its length.

    Raises what aiohttp's session raises.
    """
    connection = await _connect(session, url, way)
    protocol: Any = connection.protocol
    try:
        protocol.set_response_params(
            timer=_NO_TIMER,
            read_until_eof=True,
            auto_decompress=False,
            read_timeout=way.timeout.sock_read,
            read_bufsize=session._read_bufsize,  # noqa: SLF001 - see above
            max_line_size=session._max_line_size,  # noqa: SLF001
            max_field_size=session._max_field_size,  # noqa: SLF001
            max_headers=session._max_headers,  # noqa: SLF001
        )
        sent: CIMultiDict[str] = CIMultiDict(Host=url.host_port_subcomponent or "")
        sent.extend(headers)
        head = http_writer._serialize_headers(f"POST {url.raw_path_qs} HTTP/1.1", sent)  # noqa: SLF001
        _write(protocol, head, body)
        return await _make_response(session, url, sent, protocol).start(connection)
    except OSError as error:
        connection.close()
        if isinstance(error, TimeoutError | aiohttp.ClientError):
            raise
        raise aiohttp.ClientOSError(*error.args) from error
    except BaseException:
        connection.close()
        raise


async def _connect(session: aiohttp.ClientSession, url: URL, way: Way) -> Connection:
    """A connection that is kept, else a new one."""
    connector: Any = session.connector
    if connector is None or connector.closed:
        message = "Session is closed"
        raise RuntimeError(message)
    is_tls = url.scheme in _TLS_SCHEMES
    key = ConnectionKey(url.raw_host or "", url.port, is_tls, way.tls, None, None, None, None)
    kept: Connection | None = await connector._get(key, [])  # noqa: SLF001
    if kept is not None:
        return kept
    request_class: type[ClientRequest] = session._request_class  # noqa: SLF001
    asked = request_class("POST", url, ssl=way.tls, loop=session._loop, session=session)  # noqa: SLF001
    try:
        made: Connection = await connector.connect(asked, traces=[], timeout=way.timeout)
    except TimeoutError as error:
        message = f"Connection timeout to host {url}"
        raise aiohttp.ConnectionTimeoutError(message) from error
    return made


def _write(protocol: ResponseHandler, head: bytes, body: tuple[bytes, ...]) -> None:
    """Send a request. From now on the upstream is waited for, once it has taken what it was sent."""
    transport = protocol.transport
    if transport is None or transport.is_closing():
        message = "Cannot write to closing transport"
        raise aiohttp.ClientConnectionResetError(message)
    if sum(map(len, body)) <= JOINED_BYTES:
        transport.write(b"".join((head, *body)))
    else:
        transport.writelines((head, *body))
    if not protocol.writing_paused:
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
