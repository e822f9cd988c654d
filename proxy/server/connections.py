"""Connections of clients: where a request ends, one after another is served, and unsent bytes are bounded.

Law: no byte of one request is ever read as part of another, and a head that is too large is not read. A request that
cannot be read gets an error answer before its connection closes. A client that takes nothing is disconnected after a
time, whatever it was sent. A connection has one task; requests have none. Only this module and http/aiohttp_fixes use
private parts of aiohttp.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.http_writer import StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _PAYLOAD_ACCESS_ERROR, ERROR, RequestHandler, _ErrInfo

from trimtab.proxy.http.aiohttp_fixes.server import PlainResponse, reset_transport
from trimtab.proxy.http.errors import BadFramingError, HeadTooLargeError, ProxyError, UnreadableRequestError
from trimtab.proxy.http.headers import MAX_HEAD_BYTES, MAX_HEADER_FIELDS
from trimtab.proxy.http.relay import STALLED_SECONDS
from trimtab.proxy.server.admin.pages import answer_error

LINGERING_SECONDS = 2.0  # A refused client may go on sending. Chosen: enough to read the answer.
MAX_WAITING_REQUESTS = 2  # Of a connection, read ahead. Chosen: a head of a thousand fields takes half a megabyte.
UNSENT_BYTES = 128 * 1024  # The kernel holds for a connection. Chosen: bounds slow clients, and keeps fast ones busy.
MAX_BYTES_PER_BODY_BYTE = 8  # Chosen: the smallest chunk takes six; more, beyond the size of a head, is an attack.
MAX_STOPS = 64  # Places at which one received piece is split. Chosen: bounds the work for a body full of empty lines.

_Read = tuple[Sequence[Any], bool, bytes]
_NOTHING: _Read = ((), False, b"")
_LINE_ENDS = b"\r\n"
_END = b"\r\n\r\n"  # the end of a chunked body, and of any head


class _Connection(RequestHandler):
    """One client's connection. `head`: what is kept of its last request's head."""

    __slots__ = ("_has_ended", "_is_refusing", "_stall", "head")

    def __init__(self, manager: web.Server, **settings: Any) -> None:
        super().__init__(manager, **settings)
        make_parser = partial(
            HttpRequestParser,
            self,
            self._loop,
            self._read_bufsize,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEADER_FIELDS,
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=MAX_WAITING_REQUESTS,
        )
        self._max_msg_queue_size, self._msg_queue_resume_size = MAX_WAITING_REQUESTS, MAX_WAITING_REQUESTS // 2
        self._parser: Any = _Reader(make_parser, self)
        self.head: Any = None
        self._is_refusing = False
        self._has_ended: asyncio.Event | None = None
        self._stall: asyncio.TimerHandle | None = None

    def takes_no_more(self, added: int) -> bool:
        """Whether reading must pause: nobody reads the body, or too many requests wait, `added` included."""
        return self._reading_paused or len(self._messages) + added >= MAX_WAITING_REQUESTS

    def end_after_last(self, found: list[Any]) -> None:
        """Close the connection after the answer to the last request so far; `found` are requests read just now."""
        coming: Any = found or self._messages
        if coming:
            message, body = coming.pop()
            coming.append((message._replace(should_close=True), body))
        else:
            self.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As in aiohttp; also bound the unsent bytes in the kernel."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
            with suppress(OSError):  # already closed, or not TCP
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)

    def pause_writing(self) -> None:
        """As in aiohttp; also begin to wait for the client."""
        super().pause_writing()
        self._await_client(self.transport)

    def resume_writing(self) -> None:
        """As in aiohttp; the client has taken most of what it was sent."""
        super().resume_writing()
        self._drop_stall()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._drop_stall()
        super().connection_lost(exc)

    def force_close(self) -> None:
        """As in aiohttp, but a client that does not take the rest of its answer cannot hold the connection."""
        transport = self.transport
        super().force_close()
        if transport is not None and transport.get_write_buffer_size():
            self._await_client(transport)

    def _await_client(self, transport: Any) -> None:
        self._drop_stall()
        if transport is not None:
            self._stall = self._loop.call_later(STALLED_SECONDS, reset_transport, transport)

    def _drop_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def data_received(self, data: bytes) -> None:
        """As in aiohttp; a refused client is not read any more."""
        if not self._is_refusing:
            super().data_received(data)

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - signature of aiohttp
        """As in aiohttp, which does not check whether reading is paused."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    async def start(self) -> None:
        """As in aiohttp, but the connection's task serves each request: a task for each costs a small one 6 % more."""
        while not self._force_close:
            message, body = await self._take_request()
            if not await self._answer(message, body) or not self._keepalive or self._close or self._force_close:
                break
            self._next_keepalive_close_time = close_time = self._loop.time() + self._keepalive_timeout
            if self._keepalive_handle is None:
                self._keepalive_handle = self._loop.call_at(close_time, self._process_keepalive)
        if not self._force_close:
            self._task_handler = None
            self.force_close()

    async def _take_request(self) -> tuple[Any, StreamReader]:
        if not self._messages:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message, body = self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        return message, body

    async def _answer(self, message: Any, body: StreamReader) -> bool:
        """Serve one request; return whether the connection may go on. Any failure closes the connection."""
        handler: Any = self._request_handler
        if isinstance(message, _ErrInfo):
            handler, message = self._make_error_handler(message), ERROR
        make_request: Any = self._request_factory
        writer = StreamWriter(self, self._loop)
        # The task is not bound to a name here: an error's frames would hold the task, and the task the error.
        request = make_request(message, body, self, writer, self._task_handler or asyncio.current_task())
        is_done = False
        try:
            response, is_gone = await self._handle_request(request, None, handler)
            self._keepalive = bool(response.keep_alive)
            if not is_gone and not body.is_eof():
                await self._linger(body)
            body.set_exception(_PAYLOAD_ACCESS_ERROR)
            is_done = True
        except ConnectionError:
            return False
        finally:
            request._task = None  # noqa: SLF001 - else an error's frames and the task hold each other
            if not is_done:
                self.force_close()
        return not is_gone

    async def _linger(self, body: StreamReader) -> None:
        """Read on for a while if the client still sends: it may not read its answer before it has sent everything."""
        await asyncio.sleep(0)  # whoever read the body for the upstream may have been cancelled, and not run since
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGERING_SECONDS):
                while not self._force_close and not body.is_eof():
                    await body.readany()
        if not body.is_eof() and not self._force_close:
            self.close()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """As in aiohttp, but an incomplete request's connection ends: a proxy could reuse it for another client."""
        if not request.content.is_eof():
            resp.force_close()
            self._is_refusing = True
        elif isinstance(resp, PlainResponse) and resp._eof_sent and not self._upgraded:  # noqa: SLF001
            return resp, False  # nothing is left to do: no file of a form was opened, and there is no access log
        return await super().finish_response(request, resp, start_time)

    def eof_received(self) -> None:
        if self._has_ended is not None:
            self._has_ended.set()
        super().eof_received()

    def _make_error_handler(self, err_info: Any) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        """The handler of an unreadable request: the connection stays until the client could read the answer."""
        self._is_refusing = True

        async def refuse(request: web.BaseRequest) -> web.StreamResponse:
            self.log_exception("Error handling request from %s", request.remote, exc_info=err_info.exc)
            answer = answer_error(_explain(err_info.exc))
            await answer.prepare(request)
            await answer.write_eof()
            self._has_ended = asyncio.Event()
            if self.transport is not None and self.transport.can_write_eof():
                self.transport.write_eof()
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGERING_SECONDS):
                    await self._has_ended.wait()
            return answer

        return refuse


class _Reader:
    """Takes the place of aiohttp's parser, and gives a new parser to the request after each chunked one.

    aiohttp's parser, in C, holds the last trailer until the next field arrives, which is the next request's first one.
    Source: `_on_header_field` and `cb_on_message_begin` of its _http_parser.pyx, as of 3.14.5.

    A head ends with an empty line, and so does a chunked body. So the bytes are fed in pieces that stop at an empty
    line or at the end of a body of known length. A chunked request that ends anywhere else is the last one of its
    connection.
    """

    def __init__(self, make_parser: Callable[[], HttpRequestParser], connection: "_Connection") -> None:
        self._make_parser = make_parser
        self._connection = connection
        self._parser = make_parser()
        self._body: StreamReader = EMPTY_PAYLOAD
        self._body_bytes: int | None = 0
        self._is_open = False  # bytes of the body are still to come
        self._last_bytes = b""
        self._fed_bytes = 0
        self._rest = b""
        self._is_over = False

    def feed_data(self, data: bytes) -> _Read:
        """Return the requests whose heads are complete now, and an error behind them; raises it if there are none."""
        # Strategy: cut the bytes at each place where a request may end, and feed the pieces one by one. Between two of
        # them it is seen whether a body has ended: then the next head gets a new parser, and reading may pause.
        if self._is_over:
            return _NOTHING
        found: list[Any] = []
        is_resumed = bool(self._rest)  # then the parser still has bytes up to the last stop
        data, self._rest, start = self._rest + data, b"", 0
        size_bytes = len(data)
        for number in range(MAX_STOPS + 1):
            if number and self._connection.takes_no_more(len(found)):
                self._rest = data[start:]
                break
            stop = self._find_stop(data, start) if number < MAX_STOPS else size_bytes
            stop = 0 if is_resumed and not number else stop
            read = self._feed_behind(found, data[start:stop])
            if read is None:
                self._connection.end_after_last(found)
                break
            messages, is_upgraded, rest = read
            found += messages
            if is_upgraded:
                return found, True, rest + data[stop:]
            start = stop
            if start == size_bytes or self._is_over:
                break
        return found, False, b""

    def _find_stop(self, data: bytes, start: int) -> int:
        if self._body_bytes is not None and self._is_open:
            return min(start + self._body_bytes - self._body.total_bytes, len(data))
        if start == 0 and self._last_bytes[-1:] in _LINE_ENDS and self._last_bytes:
            across = (self._last_bytes[-3:] + data[:3]).find(_END)
            if across >= 0:
                return across + len(_END) - len(self._last_bytes[-3:])
        found = data.find(_END, start)
        return len(data) if found < 0 else found + len(_END)

    def _feed_behind(self, found: list[Any], piece: bytes) -> _Read | None:
        """As `_feed`; an error behind whole requests that were `found` is one more, as aiohttp makes of it later."""
        was_open = self._is_open
        try:
            return self._feed(piece)
        except HttpProcessingError as error:
            if was_open and not found and self._body.is_eof():
                return None  # the request has come whole, and gets its own answer
            if was_open or not found:
                raise
            return [(_ErrInfo(400, error, error.message), EMPTY_PAYLOAD)], False, b""

    def _feed(self, piece: bytes) -> _Read | None:
        """Let aiohttp parse a piece; None if nothing more can be read of this connection."""
        was_open, was_chunked = self._is_open, self._body_bytes is None
        self._last_bytes = (self._last_bytes + piece[-4:])[-4:]
        self._fed_bytes += len(piece)
        try:
            read: Any = self._parser.feed_data(piece)
            if self._fed_bytes > MAX_HEAD_BYTES:
                self._check_sizes(was_open=was_open)
        except HttpProcessingError as error:
            self._is_over = True
            if not self._body.is_eof():
                message = "the chunks or trailers of the request's body cannot be read, or are too large"
                self._body.set_exception(BadFramingError(message))
            raise error from None
        messages, is_upgraded, rest = read
        self._is_open = was_open and not self._body.is_eof()
        if was_open and not self._is_open:
            self._fed_bytes = 0
            if was_chunked and not messages and (is_upgraded or self._last_bytes == _END):
                self._parser = self._make_parser()
            elif was_chunked:
                self._is_over = True
                return None
        for message, body in messages:
            self._body, self._fed_bytes = body, 0
            self._body_bytes = None if message.chunked else int(message.headers.get("Content-Length", "0"))
            self._is_open = not body.is_eof()
        return messages, is_upgraded, rest

    def _check_sizes(self, *, was_open: bool) -> None:
        """Raises LineTooLong if a head, or the framing of a chunked body, is too large; only a longer one can be."""
        allowed_bytes = MAX_HEAD_BYTES
        if was_open:
            allowed_bytes += MAX_BYTES_PER_BODY_BYTE * self._body.total_bytes
        if self._fed_bytes > allowed_bytes:
            raise LineTooLong(b"", MAX_HEAD_BYTES)

    def pause_reading(self) -> None:
        self._parser.pause_reading()

    def message_consumed(self) -> None:
        self._parser.message_consumed()

    def set_upgraded(self, val: bool) -> None:  # noqa: FBT001 - signature of aiohttp
        self._parser.set_upgraded(val)


class Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


def _explain(error: Exception) -> ProxyError:
    if isinstance(error, LineTooLong) or "Too many headers" in str(error):
        return HeadTooLargeError(
            f"the head of a request may have at most {MAX_HEAD_BYTES} bytes and {MAX_HEADER_FIELDS} header fields;"
            " send fewer or shorter ones"
        )
    message = "this is not an HTTP/1.1 request; check the client, and whether it speaks TLS to this port"
    return UnreadableRequestError(message)
