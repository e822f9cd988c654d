"""Workarounds for aiohttp's connection to an upstream: its timeouts, its end, and bodies taken as they arrive.

Law: an answer that has arrived is read, whatever became of its request or stands behind it. A follower takes each byte
of a body once, in order, and nothing after it has refused, or after an end or an error; its caller reads on from there
as if there had been none.
"""

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpResponseParser

from trimtab.proxy.http.headers import MAX_HEAD_BYTES, MAX_HEADER_FIELDS

READ_BYTES = 64 * 1024  # Read at once of what is left in a connection. Chosen: a whole error.
_TO_BLANK_LINE = re.compile(rb".*?(?:\r?\n\r?\n|\Z)", re.DOTALL)
Take = Callable[[bytes], bool]  # Takes bytes; whether it can take more. May raise ConnectionError.


class FollowedProtocol(ResponseHandler):
    """A connection of aiohttp that may have a follower, which it notifies when something arrives."""

    follower: "Follower | None" = None


class _FollowedReader(aiohttp.StreamReader):
    """A body whose pieces go straight to the follower, and not through the buffer, as long as it takes all of them.

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
        """As aiohttp's: a head has arrived. Behind an informational one, another follows."""
        if self.arrived is not None:
            self.arrived = None if data[0].code >= 200 else [b"".join(self.arrived).rpartition(b"\r\n\r\n")[2]]
        super().feed_data(data, size)

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        """As aiohttp's, unless a whole response arrived with bytes behind it that cannot be read."""
        self.read_rest(exc)
        if not (isinstance(exc, HttpProcessingError) and self._take_response()):
            super().set_exception(exc, *(() if exc_cause is None else (exc_cause,)))

    def read_rest(self, error: BaseException | None) -> None:
        """Read what arrived before sending failed: an upstream may answer early, and reset the connection.

        The event loop gives up a connection at the first failure, whatever the kernel still holds.
        """
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
        """Take the response out of what has arrived; False if it is not whole there.

        aiohttp's parser gives nothing of a response if it fails at bytes that arrived together with the end of its
        head. The connection is closed by then.
        """
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
        """As aiohttp's; an incomplete body then raises an error.

        aiohttp closes the connection at a chunk that it cannot parse, and the reader of the body waits forever.
        """
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


class Secured(asyncio.BufferedProtocol):
    """Stands between a connection and its TLS: what has arrived is decrypted before TLS learns of a failure."""

    def __init__(self, transport: asyncio.Transport, protocol: UpstreamProtocol) -> None:
        tls: Any = transport.get_protocol()
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
