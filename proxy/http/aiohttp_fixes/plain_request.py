"""A plain request's way through aiohttp's client: a connection of the pool, one write, the answer's head.

Law: an answer is what aiohttp's own client would make of it, to the byte and to the error. What is not plain (a proxy,
an upgrade, a body in pieces) goes aiohttp's own way.
"""

from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import http_writer
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest, ConnectionKey, RequestInfo
from aiohttp.connector import Connection
from aiohttp.helpers import TimerNoop
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

JOINED_BYTES = 16 * 1024
"""A body up to this size is copied behind its head; a larger one is handed over beside it."""
_TLS_SCHEMES = frozenset({"https", "wss"})
_NO_TIMER = TimerNoop()


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
