"""Workarounds for aiohttp's client: its connections, plain requests, and bodies that are taken as they arrive.

Law: nobody gets a response to another request, and nobody waits for a response that can no longer come. One that has
arrived is read, whatever became of its request or stands behind it. The fast path for plain requests gives the same
bytes and the same errors as aiohttp's session. Requests that are not plain (a forward proxy, an upgrade, a body that is
still to arrive) use the session. A follower takes each byte of a body once, in order, and nothing after it has refused,
or after an end or an error; its caller reads on from there as if there had been none.
"""

import asyncio
import os
import re
import select
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Self

import aiohttp
import msgspec
from aiohttp import http_writer
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest, ConnectionKey, RequestInfo
from aiohttp.connector import Connection
from aiohttp.helpers import TimerNoop
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpResponseParser
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from trimtab.proxy.http.aiohttp_fixes.tunnels import READ_BYTES, Secured, TunnelConnector
from trimtab.proxy.http.headers import MAX_HEAD_BYTES, MAX_HEADER_FIELDS

JOINED_BYTES = 16 * 1024  # A body up to this size is joined with its head. Chosen: copying so few bytes is cheap.
_TLS_SCHEMES = frozenset({"https", "wss"})
_NO_TIMER = TimerNoop()
_SWITCHING = 101  # Source: RFC 9110 section 15.2.2
_TO_BLANK_LINE = re.compile(rb".*?(?:\r?\n\r?\n|\Z)", re.DOTALL)
Take = Callable[[bytes], bool]  # Takes bytes; whether it can take more. May raise ConnectionError.


class FollowedProtocol(ResponseHandler):
    """A connection of aiohttp that may have a follower, which it notifies when something arrives."""

    follower: "Follower | None" = None


class _FollowedReader(aiohttp.StreamReader):
    """A body whose pieces go straight to the follower, without the buffer, as long as it takes all of them.

    Where the HTTP chunks end is not kept: only `readchunk` asks for it, which nobody calls here.
    """

    __slots__ = ()

    def feed_data(self, data: bytes, size: int = 0) -> bool:
        protocol: Any = self._protocol  # a FollowedProtocol, for only its bodies are followed
        follower: Follower | None = protocol.follower
        if follower is None or not follower.is_open or self._buffer or not data:
            return super().feed_data(data, size)
        follower.is_open = False  # writing the piece may bring the next one
        try:
            follower.is_open = follower.is_free = follower.take(data)
        except ConnectionError as error:  # the parser that calls this must not see it
            follower.fail(error)
        except BaseException:
            follower.fail()
            raise
        return False

    def begin_http_chunk_receiving(self) -> None: ...

    def end_http_chunk_receiving(self) -> None: ...


class Follower:
    """Takes a body as it arrives.

    over: done when the follower takes no more; holds the ConnectionError that `take` raised, if it did.
    is_free: whether it could take more at once after the newest piece.
    is_open: whether it takes the next piece before that is buffered: all before it were taken.
    """

    __slots__ = ("_content", "_is_looking", "_protocol", "is_free", "is_open", "over", "take")

    def __init__(self, protocol: FollowedProtocol, content: aiohttp.StreamReader, take: Take) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_free, self.is_open = True, False
        self.take = take
        if type(content) is aiohttp.StreamReader:
            content.__class__ = _FollowedReader  # aiohttp's parser makes it
        self._protocol = protocol
        self._content = content
        self._is_looking = False

    def look(self) -> None:
        """Take what has arrived; called when bytes arrived or the connection failed."""
        # Strategy: empty the buffer in a loop, then decide once whether this was the end. Whatever goes wrong, `over`
        # is done: with a result, an error, or a cancellation, because its caller waits for nothing else. Once the
        # buffer is empty, the reader gives each piece to `take` itself, and there is nothing to do here until the end.
        content: Any = self._content
        if self.is_open and not content._eof and content._exception is None and not content._buffer:  # noqa: SLF001
            return
        if self._is_looking or self.over.done():  # reading may call this again: aiohttp then parses what it put off
            return
        self._is_looking, self.is_open = True, False
        try:
            # aiohttp's public methods for this take eight calls for each piece.
            while self.is_free and content._exception is None and (pieces := content._buffer):  # noqa: SLF001
                self.is_free = self.take(content._read_nowait_chunk(-1) if len(pieces) == 1 else content.read_nowait())  # noqa: SLF001
        except ConnectionError as error:
            self.fail(error)
        except BaseException:
            self.fail()  # without this the caller would wait forever
            raise
        finally:
            self._is_looking = False
        if self.over.done():
            return
        self.is_open = self.is_free and not content._eof and content._exception is None  # noqa: SLF001
        if not self.is_open:
            self.leave()
            self.over.set_result(None)

    def fail(self, error: ConnectionError | None = None) -> None:
        """`take` has failed; unexpectedly if there is no error."""
        self.leave()
        if error is None:
            self.over.cancel()
        elif not self.over.done():  # else the caller was cancelled, and has not run since
            self.over.set_exception(error)

    def leave(self) -> None:
        self.is_open = False
        if self._protocol.follower is self:
            self._protocol.follower = None


async def follow(answer: aiohttp.ClientResponse, take: Take) -> None:
    """Give a body to `take` as it arrives, until `take` refuses more, the body ends or the connection fails.

    No task is woken for a piece, because that would cost as much as passing the piece on. Raises what `take` raises.
    The connection's read timeout still applies.
    """
    protocol, content = None if answer.connection is None else answer.connection.protocol, answer.content
    if not isinstance(protocol, FollowedProtocol):
        return
    follower = protocol.follower = Follower(protocol, content, take)
    try:
        follower.look()
        await follower.over
    finally:
        follower.leave()


class UpstreamProtocol(FollowedProtocol):
    """A connection to an upstream.

    aiohttp starts a new timer for the read timeout with each piece that it reads. Here each piece only moves a
    deadline, and one timer per connection checks it. The timeout is the same but costs far less.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._deadline = self._fires_at = 0.0
        self.poll: Any = None  # made when the connection is used again
        self.secured: Secured | None = None
        self.arrived: list[bytes] | None = []
        """Up to the end of a response's head, what has arrived of it; then None."""

    @property
    def should_close(self) -> bool:
        """As aiohttp's, and also if the upstream responded before it took the whole request."""
        return self._paused or super().should_close

    def data_received(self, data: bytes) -> None:
        """As aiohttp's; then the follower takes what was read."""
        if self.arrived is not None:
            self.arrived.append(data)
        super().data_received(data)
        if self.follower is not None:
            self.follower.look()

    def feed_data(self, data: Any, size: int = 0) -> None:
        """As aiohttp's: a head has arrived. Behind an informational one, another follows, unless it is no HTTP then."""
        if self.arrived is not None:
            is_last = not 100 <= data[0].code < 200 or data[0].code == _SWITCHING
            self.arrived = None if is_last else [b"".join(self.arrived).rpartition(b"\r\n\r\n")[2]]
        super().feed_data(data, size)

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        """As aiohttp's, unless a whole response arrived with bytes behind it that cannot be read."""
        self.read_rest(exc)
        if not (isinstance(exc, HttpProcessingError) and self._take_response()):
            super().set_exception(exc, *(() if exc_cause is None else (exc_cause,)))

    def read_rest(self, error: BaseException | None) -> None:
        """Read what arrived before sending failed: an upstream may answer early, and reset the connection."""
        if not isinstance(error, OSError) or self.transport is None or self._parser is None:
            return
        found = self.transport.get_extra_info("socket")
        if found is None:
            return
        with suppress(OSError):
            if self.secured is not None:
                self.secured.read_rest(found)
                return
            while found.fileno() >= 0 and (data := os.read(found.fileno(), READ_BYTES)):
                self.data_received(data)

    def _take_response(self) -> bool:
        """Take the response, if whole, from what arrived. aiohttp's parser gives none if bytes behind its head fail."""
        # Strategy: feed a new parser piece by piece, as it gives what it read before a piece that it cannot read.
        if self.arrived is None:
            return False
        arrived = b"".join(self.arrived)
        parser = HttpResponseParser(
            self,
            self._loop,
            len(arrived),
            payload_exception=aiohttp.ClientPayloadError,
            response_with_body=not self._skip_payload,
            read_until_eof=True,
            auto_decompress=False,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEADER_FIELDS,
        )
        found: list[Any] = []
        with suppress(HttpProcessingError):
            for piece in _TO_BLANK_LINE.findall(arrived):
                found += parser.feed_data(piece)[0]
        if not found or not found[-1][1].is_eof() or found[-1][0].code < 200:
            return False
        self._should_close = True
        self._drop_timeout()
        for response in found:
            self.feed_data(response)
        return True

    def resume_writing(self) -> None:
        """The upstream has taken the rest of a request: its read timeout starts now."""
        super().resume_writing()
        self.start_timeout()

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - as aiohttp's
        """As aiohttp's, which does not check whether reading is paused."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def connection_lost(self, exc: BaseException | None) -> None:
        """As aiohttp's; an incomplete body then raises: behind a broken chunk, its reader would wait forever."""
        self.read_rest(exc)
        body = self._payload
        super().connection_lost(exc)
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError("the rest of the response cannot be read"))
        if self.follower is not None:
            self.follower.look()
        if self._closed is not None and not self._closed.cancelled():
            self._closed.exception()  # marks the error as seen, else asyncio would log it

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


def _has_news(protocol: Any) -> bool:
    """Whether an idle connection has unread input: bytes unasked for, or its end. A request on it would fail."""
    if protocol.poll is None:
        found = None if protocol.transport is None else protocol.transport.get_extra_info("socket")
        if found is None:
            return False
        protocol.poll = select.poll()
        protocol.poll.register(found.fileno(), select.POLLIN)
    return bool(protocol.poll.poll(0))


class Connector(TunnelConnector):
    """Does not reuse a connection with bytes unasked for: they would be taken for another client's response."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._factory = partial(UpstreamProtocol, loop=self._loop)

    async def _get(self, key: Any, traces: Any) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            protocol: Any = connection._protocol  # noqa: SLF001 - a property costs a call
            if protocol is not None and not protocol.should_close and not _has_news(protocol):
                protocol.arrived = []
                return connection
            connection.close()
        return None


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
    """Send a POST; `headers` have its Content-Length. on_sent: all is on its way. Raises the errors of aiohttp."""
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
        return await _PlainAnswer.of(session, url, sent, protocol).start(connection)
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


class _PlainAnswer(aiohttp.ClientResponse):
    """The response to a plain request: as aiohttp's, which asks in 20 calls for what is known here."""

    @classmethod
    def of(cls, session: aiohttp.ClientSession, url: URL, headers: CIMultiDict[str], protocol: Any) -> Self:
        """The response, before it has begun."""
        return cls(
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

    @cached_property
    def content_type(self) -> str:
        return super().content_type

    async def start(self, connection: Connection) -> Self:
        """Wait for the head of the response. As aiohttp's, but cookies are not looked for: none is kept."""
        protocol = connection._protocol  # noqa: SLF001
        self._closed, self._protocol, self._connection = False, protocol, connection
        message: Any = None
        body: Any = None
        while message is None or (100 <= message.code < 200 and message.code != _SWITCHING):
            try:
                message, body = await protocol.read()  # type: ignore[union-attr]
            except HttpProcessingError as error:
                raise aiohttp.ClientResponseError(
                    self.request_info, (), status=error.code, message=error.message, headers=error.headers
                ) from error
        body.on_eof(self._response_eof)
        self.version, self.status, self.reason = message.version, message.code, message.reason
        self._headers, self._raw_headers, self.content = message.headers, message.raw_headers, body
        return self

    def _response_eof(self) -> None:
        connection = self._connection
        protocol = None if connection is None else connection._protocol  # noqa: SLF001
        if not self._closed and (protocol is None or not protocol.upgraded):
            self._closed, self._connection = True, None
            if connection is not None:
                connection.release()
