"""The log as lines of JSON, gathered for a moment and written together.

Law: lines keep the order in which they were logged. Only lines of requests wait, at most WAIT_SECONDS, and only while
an event loop runs that can write them. Any other event is written at once, together with the waiting lines. When the
process ends normally, no line is lost. A killed process loses only the waiting lines.
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
"""Chosen: short for a reader, long enough to gather. One write for each line takes 14 us of the 450 us of a small
request (bench/README.md)."""
MAX_WAITING_BYTES = 64 * 1024
"""If more waits, it is written at once. Source: the capacity of a pipe on Linux."""
WHOLE_BYTES = 4096
"""Largest atomic write to a pipe; larger writes of several processes would mix. Source: PIPE_BUF of Linux."""
GATHERED_EVENT = "request"
"""The event that is logged for each request."""


class JsonLines:
    """Writes each event as one line of JSON. Thread-safe."""

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
        """Write the waiting lines. A closed stream must not fail a request, so its errors are ignored."""
        with self._lock, suppress(OSError, ValueError):
            lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
            for piece in _gather(lines):
                self._stream.write(piece)
                self._stream.flush()

    def _is_to_be_written_soon(self) -> bool:
        """Whether the running loop will write the waiting lines; False if no loop runs in this thread."""
        if threading.get_ident() == self._thread and self._loop is not None and self._loop.is_running():
            return True  # `get_running_loop` costs a system call
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
    """Join whole lines up to WHOLE_BYTES; a longer line stays alone."""
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
