"""Finds the end of one request of a connection and the beginning of the next.

Law: no byte of one request is ever read as part of another. A head that is too large is not read.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from proxy.http.errors import BadFramingError
from proxy.http.headers import MAX_HEAD_BYTES

MAX_BYTES_PER_BODY_BYTE = 8
"""Bytes on the wire for each byte of a chunked body. Chosen: the smallest chunk, of one byte, takes six. More,
beyond the size of a head, is an attack."""
MAX_STOPS = 64
"""Places at which one received piece is split. Chosen: bounds the work for a body full of empty lines."""

_Read = tuple[Sequence[Any], bool, bytes]
_NOTHING: _Read = ((), False, b"")
_END = b"\r\n\r\n"
"""The end of a chunked body, and of any head."""


class Owner(Protocol):
    """The connection that is read."""

    def takes_no_more(self, added: int) -> bool:
        """Whether reading must pause: nobody reads the body, or too many requests wait, `added` included."""

    def end_after_last(self, found: list[Any]) -> None:
        """Close the connection after the answer to the last request so far; `found` are requests read just now."""


class Reader:
    """Takes the place of aiohttp's parser, and gives a new parser to the request after each chunked one.

    aiohttp's parser, in C, holds the last trailer until the next field arrives, which is the next request's first one.
    Source: `_on_header_field` and `cb_on_message_begin` of its _http_parser.pyx, as of 3.14.5.

    A head ends with an empty line, and so does a chunked body. So the bytes are fed in pieces that stop at an empty
    line or at the end of a body of known length. A chunked request that ends anywhere else is the last one of its
    connection.
    """

    def __init__(self, make_parser: Callable[[], HttpRequestParser], connection: Owner) -> None:
        self._make_parser = make_parser
        self._connection = connection
        self._parser = make_parser()
        self._body: StreamReader = EMPTY_PAYLOAD
        self._body_bytes: int | None = 0
        self._last_bytes = b""
        self._fed_bytes = 0
        self._rest = b""
        self._is_over = False

    def feed_data(self, data: bytes) -> _Read:
        """Return the requests whose heads are complete now. Raises aiohttp's HttpProcessingError."""
        if self.is_over():
            return _NOTHING
        found: list[Any] = []
        is_resumed = bool(self._rest)  # then the parser still has bytes up to the last stop
        data, self._rest, start = self._rest + data, b"", 0
        for number in range(MAX_STOPS + 1):
            if number and self._connection.takes_no_more(len(found)):
                self._rest = data[start:]
                break
            stop = self._find_stop(data, start) if number < MAX_STOPS else len(data)
            stop = 0 if is_resumed and not number else stop
            messages, is_upgraded, rest = self._feed(data[start:stop])
            found += messages
            if self.is_over():
                self._connection.end_after_last(found)
                break
            if is_upgraded:
                return found, True, rest + data[stop:]
            start = stop
            if start == len(data):
                break
        return found, False, b""

    def is_over(self) -> bool:
        """Whether nothing more is read of this connection."""
        return self._is_over

    def _find_stop(self, data: bytes, start: int) -> int:
        """End of the piece that may be fed at once."""
        if self._body_bytes is not None and not self._body.is_eof():
            return min(start + self._body_bytes - self._body.total_bytes, len(data))
        if start == 0 and self._last_bytes:
            across = (self._last_bytes[-3:] + data[:3]).find(_END)
            if across >= 0:
                return across + len(_END) - len(self._last_bytes[-3:])
        found = data.find(_END, start)
        return len(data) if found < 0 else found + len(_END)

    def _feed(self, piece: bytes) -> _Read:
        was_open, was_chunked = not self._body.is_eof(), self._body_bytes is None
        self._last_bytes = piece[-4:] if len(piece) >= len(_END) else (self._last_bytes + piece)[-4:]
        self._fed_bytes += len(piece)
        try:
            read: Any = self._parser.feed_data(piece)
            self._check_sizes(was_open=was_open)
        except HttpProcessingError as error:
            self._is_over = True
            if not self._body.is_eof():
                message = "the chunks or trailers of the request's body cannot be read, or are too large"
                self._body.set_exception(BadFramingError(message))
            raise error from None
        messages, is_upgraded, rest = read
        if was_open and self._body.is_eof():
            self._fed_bytes = 0
            if was_chunked and not messages and (is_upgraded or self._last_bytes == _END):
                self._parser = self._make_parser()
            elif was_chunked:
                self._is_over = True
                return _NOTHING
        for message, body in messages:
            self._body, self._fed_bytes = body, 0
            self._body_bytes = None if message.chunked else int(message.headers.get("Content-Length", "0"))
        return messages, is_upgraded, rest

    def _check_sizes(self, *, was_open: bool) -> None:
        """Raises LineTooLong if a head, or the framing of a chunked body, is too large."""
        if self._fed_bytes <= MAX_HEAD_BYTES:
            return
        allowed_bytes = MAX_HEAD_BYTES
        if was_open:
            allowed_bytes += MAX_BYTES_PER_BODY_BYTE * self._body.total_bytes
        if self._fed_bytes > allowed_bytes:
            raise LineTooLong(b"", MAX_HEAD_BYTES)  # noqa: EM101 - the quoted line, not a message

    def pause_reading(self) -> None:
        """As in aiohttp."""
        self._parser.pause_reading()

    def message_consumed(self) -> None:
        """As in aiohttp."""
        self._parser.message_consumed()

    def set_upgraded(self, val: bool) -> None:  # noqa: FBT001 - signature of aiohttp
        """As in aiohttp."""
        self._parser.set_upgraded(val)
