"""The log as lines of JSON, gathered for a moment and written together.

Law: lines stand in the order in which they were logged. Only the lines of requests wait, for WAIT_SECONDS at most, and
only while a loop runs that can write them; whatever else is logged is written at once, with all that waits. At the
process's end nothing waits. What a killed process had still to write is lost, and no more.
"""

import asyncio
import atexit
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, BinaryIO

import orjson

WAIT_SECONDS = 0.25
"""A line for each write takes 14 us of a small request, of 450. Measured: bench/README.md."""
MAX_WAITING_BYTES = 64 * 1024
"""More is written at once: what a pipe holds on Linux."""
WHOLE_BYTES = 4096
"""So much is written to a pipe as one; of more, several processes would mix their lines. Source: PIPE_BUF of Linux."""
GATHERED_EVENT = "request"
"""The one event that comes with each request."""


class JsonLines:
    """Writes events as JSON, a line each. Safe to use from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        atexit.register(self.flush)

    def write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """Write an event with its fields."""
        members = {**fields, "event": event, "level": level, "timestamp": datetime.now(UTC)}
        line = orjson.dumps(members, default=repr, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE)
        with self._lock:
            self._waiting.append(line)
            self._waiting_bytes += len(line)
            waits = event == GATHERED_EVENT and level == "info" and self._waiting_bytes <= MAX_WAITING_BYTES
        if not waits or not self._is_to_be_written_soon():
            self.flush()

    def flush(self) -> None:
        """Write what waits. A stream that takes nothing any more is no reason to fail a request."""
        with self._lock, suppress(OSError, ValueError):
            lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
            for piece in _gather(lines):
                self._stream.write(piece)
                self._stream.flush()

    def _is_to_be_written_soon(self) -> bool:
        """Whether the running loop will write what waits; False if none runs in this thread."""
        if threading.get_ident() == self._thread and self._loop is not None and self._loop.is_running():
            return True  # asking for the running loop is a system call
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        if loop is not self._loop:
            self._loop, self._thread = loop, threading.get_ident()
            loop.call_later(WAIT_SECONDS, self._end_wait, loop)
        return True

    def _end_wait(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is loop:
            self._loop = None
        self.flush()


def _gather(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Whole lines together, up to WHOLE_BYTES; a line that is longer alone."""
    piece: list[bytes] = []
    size_bytes = 0
    for line in lines:
        if piece and size_bytes + len(line) > WHOLE_BYTES:
            yield b"".join(piece)
            piece, size_bytes = [], 0
        piece.append(line)
        size_bytes += len(line)
    if piece:
        yield b"".join(piece)
