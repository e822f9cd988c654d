"""Server-sent events, read from chunks that may be cut anywhere.

Law: no I/O. Whatever the input is, nothing is raised and no more is kept than the bounds allow.
"""

import re
from collections.abc import Callable
from typing import Protocol

from trimtab.proxy.wire.json import BYTE_ORDER_MARK

MAX_EVENT_BYTES = 512 * 1024  # A longer event is skipped. Chosen: it holds an image or sound; bounds each stream.
MAX_FIRST_EVENT_BYTES = 64 * 1024  # With a longer one, a stream is held no longer. Chosen: errors are shorter.
MAX_GREETINGS = 32  # After so many, a stream is held no longer. Chosen: servers send a handful.
MAX_FIRST_LINES = 1000
"""With so many at once before its first event, a stream is held no longer. Chosen: errors have far fewer, and reading
them takes 2 ms on the event loop."""
MAX_EMPTY_EVENT_BYTES = 4 * 1024
"""In a longer one something is said. Chosen: Azure's filter results have hundreds of bytes, decoded on the loop."""


def write_event(data: bytes, name: bytes = b"") -> bytes:
    """JSON as one event. Line breaks are dropped: JSON may have them only between its values."""
    head = b"event: %b\n" % name if name else b""
    return head + b"data: " + data.translate(None, b"\r\n") + b"\n\n"


_STREAM = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")


def is_stream(body: bytes) -> bool:
    """Whether a body begins as a stream of events, whatever its content type is."""
    return _STREAM.match(body) is not None


def read_events(body: bytes) -> list[bytes] | None:
    """The data of each event of a whole stream; None if the body is no stream. `[DONE]` is left out."""
    if not is_stream(body):
        return None
    reader = EventReader()
    return [data for data in (*reader.feed(body), *reader.finish()) if data.strip() != b"[DONE]"]


_EVENT = re.compile(rb"data:([^\r\n]*+)\n\n")
_PLAIN = re.compile(rb"data:[^\r\n]*+\n\n(?:data:[^\r\n]*+\n\n|)*+")  # Whole events of one line each: by far the most
_IDLE = re.compile(rb"\n\n(?=[\n:])(?:\n++|:[^\n]*+\n|)*+")
"""An event's end, and the comments and blank lines behind it: all that cannot be data."""
_COMMENTS = re.compile(rb"\n(?=:)(?::[^\n]*+\n|)*+")
_LINE_END = re.compile(rb"[\r\n](?:(?<=\r)\n|(?<!\r)|(?<=\r\r)|(?!\Z))")
"""LF, CRLF or CR. A last CR may be half of a CRLF, unless it ends a blank line. It begins with a set of characters, for
which C searches three times as fast as for alternatives."""


class PassOver(Protocol):
    """Takes the data of an event that is too long to be kept, piece by piece."""

    def __call__(self, piece: bytes, *, is_end: bool) -> object:
        """Take the next bytes; the event has ended with them if `is_end`."""


class EventReader:
    """Splits a stream into the data of its events. `pass_over` gets those of one line that are too long."""

    def __init__(self, pass_over: PassOver | None = None) -> None:
        self._pass_over = pass_over
        self._is_passing = False
        self._was_cr = False  # the last byte was a CR, which has ended a line
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        # Strategy: C splits whole events of one line each at once, else the lines of a chunk; only a line that has not
        # ended is kept between chunks. An event is the `data:` lines up to a blank one; names, ids and comments are
        # passed over, and so is a byte order mark. LF, CRLF or CR ends a line. Source: the HTML standard, 9.2.6.
        events: list[bytes] = []
        if self._rest or self._size:
            stop = chunk.find(b"\n\n") + 2
            if 1 < stop < len(chunk):  # the end of an open event, and what C may split
                return self.feed(chunk[:stop]) + self.feed(chunk[stop:])
        plain = None if self._rest or self._size else _PLAIN.match(chunk)
        if plain is not None and plain.end() <= MAX_EVENT_BYTES:
            events = _EVENT.findall(plain[0])
            chunk = chunk[plain.end() :]
            self._was_cr = False
        if self._was_cr and chunk:
            chunk, self._was_cr = chunk.removeprefix(b"\n"), False
        if b"\r" in chunk:
            self._was_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n\n\n" in chunk or b"\n:" in chunk:
            chunk = _COMMENTS.sub(b"\n", _IDLE.sub(b"\n\n", chunk))
        if b"\n" not in chunk:
            self._keep(chunk)
            return events
        head, _, chunk = chunk.partition(b"\n")
        self._keep(head)
        *lines, rest = chunk.split(b"\n")
        events += self._read_lines([bytes(self._rest), *lines])
        self._rest = bytearray(rest)
        return events

    def finish(self) -> list[bytes]:
        """The stream has ended; returns the data of a last event that has no blank line after it."""
        events = self._read_lines([bytes(self._rest), b""])
        self._rest.clear()
        self._pass_over = None  # it may belong to the owner of this reader; a cycle would wait for the collector
        return events

    def _keep(self, piece: bytes) -> None:
        """Add to the line that has not ended. Only the beginning of a line that is too long is kept."""
        if len(self._rest) <= MAX_EVENT_BYTES:
            self._rest += piece
        elif self._pass_over is not None and not self._size and self._rest.startswith(b"data:"):
            self._pass_over(piece if self._is_passing else bytes(self._rest[5:]) + piece, is_end=False)
            self._is_passing = True

    def _read_lines(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for line in lines:
            text = line[3:] if line[:3] == BYTE_ORDER_MARK else line
            if text[:5] == b"data:":
                self._size += len(text)
                if self._size <= MAX_EVENT_BYTES:
                    self._data.append(text[5:])
                elif self._pass_over is not None and self._size == len(text):  # not a line in the midst of an event
                    self._pass_over(b"" if self._is_passing else text[5:], is_end=True)
                self._is_passing = False
            elif not text:
                if self._data:
                    events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                    self._data = []
                self._size = 0
        return events


class FirstEvent:
    """Holds a stream back until its first event with data is complete. Comments before that event may pass.

    max_bytes: with more, or with MAX_FIRST_LINES at once, a stream is held no longer.
    keeps_all: hold comments back, too.
    is_answer: whether a line is certainly part of a completion; then the stream is held no longer.
    is_greeting: whether the data of an event says only that an answer has begun, and nothing of it. Then the next event
        counts as the first one. Comments pass such events. A line that says so by itself is no answer.
    is_ping: whether the data of an event only keeps the connection open. Such an event passes like a comment; after a
        greeting it is held with it.
    data: the data of the event. None until `is_done`, if the event is too long, if a line of it `is_answer`, or after
        too many greetings.
    """

    def __init__(
        self,
        is_answer: Callable[[bytes], bool],
        max_bytes: int = MAX_FIRST_EVENT_BYTES,
        *,
        keeps_all: bool = False,
        is_greeting: Callable[[bytes], bool] | None = None,
        is_ping: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.held = bytearray()
        self.data: bytes | None = None
        self.is_done = False
        self._is_answer = is_answer
        self._is_greeting = is_greeting
        self._is_ping = is_ping
        self._keeps_all = keeps_all
        self._max_bytes = max_bytes
        self._greeted = 0  # bytes of greetings, at the beginning of `held`
        self._greetings = 0
        self._read = 0
        self._lines: list[bytes] = []

    @property
    def is_greeted(self) -> bool:
        return self._greeted > 0

    def finish(self) -> None:
        """The stream has ended; a first event without a blank line after it counts as complete."""
        last = bytes(self.held[self._read :]).rstrip(b"\r").removeprefix(BYTE_ORDER_MARK)
        if last.startswith(b"data:"):
            self._lines.append(last[5:])
        if self._lines and not self.is_done:
            self.data = b"\n".join(self._lines)
        self.is_done = True

    def feed(self, chunk: bytes) -> bytes:
        # Strategy: read on line by line from where the last chunk ended, and move two marks through `held`: `_read`,
        # up to where lines were looked at, and `passed`, up to where bytes may leave. Greetings stay at the beginning
        # of `held`, because an error may still follow them, and then the client must get neither.
        at = max(self._read, len(self.held) - 1)
        self.held += chunk
        passed, free = self._greeted, b""
        for _ in range(MAX_FIRST_LINES):
            end = None if self.is_done else _LINE_END.search(self.held, at)
            if end is None:
                break
            line = bytes(self.held[self._read : end.start()]).removeprefix(BYTE_ORDER_MARK)
            self._read = end.end()
            if line.startswith(b"data:"):
                self._lines.append(line[5:])
                self.is_done = self._is_answer(line) and not (self._is_greeting and self._is_greeting(line[5:]))
            elif not line and self._lines:
                free += self._release(passed)
                passed = self._end_event()
            elif not self._lines and (not line or line.startswith(b":")):
                passed = self._read
            at = self._read
        else:
            self.is_done = True
        free += self._release(passed)
        if not self.is_done and len(self.held) > self._max_bytes:
            self.is_done = True
        return free

    def _release(self, stop: int) -> bytes:
        if self._keeps_all:
            return b""
        free = bytes(self.held[self._greeted : stop])
        del self.held[self._greeted : stop]
        self._read -= len(free)
        return free

    def _end_event(self) -> int:
        """An event is complete: a ping, a greeting, or the first event. Returns how many bytes of `held` are judged."""
        data = b"\n".join(self._lines)
        if self._is_ping is not None and self._is_ping(data):
            self._lines.clear()
            self._greeted = self._read if self._greeted else 0
            return self._greeted or self._read
        if self._is_greeting is not None and self._is_greeting(data):
            self._lines.clear()
            self._greeted, self._greetings = self._read, self._greetings + 1
            self.is_done = self._greetings == MAX_GREETINGS
        else:
            self.data, self.is_done = data, True
        return self._greeted
