"""The benchmarks' client: one blocking keep-alive connection, the same for the upstream and for the proxy.

Law: a request is built before the clock starts; its response is read to the end before the clock stops.
"""

import re
import socket
import time
from dataclasses import dataclass
from typing import Self

READ_BYTES = 256 * 1024
TIMEOUT_SECONDS = 60.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SENT = re.compile(rb'"sent_ns":(\d+)}\n\n')
_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete response, and the time from the request's first byte to the response's last byte."""

    head: bytes
    body: bytes
    seconds: float

    def header(self, name: str) -> str:
        """The value of a header; empty if it is missing."""
        found = re.search(rb"\r\n" + name.encode() + rb": *([^\r]*)", self.head, re.IGNORECASE)
        return found.group(1).decode() if found else ""


@dataclass(frozen=True, slots=True)
class Stream:
    """An event stream: seconds until the first event, and for each event the seconds from sending to arrival."""

    first_byte_seconds: float
    delays_seconds: tuple[float, ...]


def build_request(body: bytes, *headers: str) -> bytes:
    """A chat completion request as it is sent; `headers` are additional lines."""
    lines = [
        "POST /v1/chat/completions HTTP/1.1",
        "Host: localhost",
        "Authorization: Bearer sk-bench",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class Connection:
    """A connection to a local port, also a context manager. Close it when done."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: bytes) -> Answer:
        """Send a request and read its response (200, with a Content-Length), else raise RuntimeError."""
        started = time.perf_counter()
        self._socket.sendall(request)
        data = b""
        head, found, body = b"", b"", b""
        while not found or len(body) < _read_length(head):
            data += self._receive()
            head, found, body = data.partition(b"\r\n\r\n")
        seconds = time.perf_counter() - started
        _check_status(head)
        return Answer(head, body, seconds)

    def stream(self, request: bytes) -> Stream:
        """Send a request and follow the event stream of harness/upstream.py. Raises RuntimeError unless it is a 200."""
        started_ns = time.monotonic_ns()
        self._socket.sendall(request)
        data = b""
        arrivals_ns: list[int] = []
        delays_seconds: list[float] = []
        read_to = 0
        while not data.endswith(_LAST_CHUNK):
            data += self._receive()
            now_ns = time.monotonic_ns()
            for event in _SENT.finditer(data, read_to):
                arrivals_ns.append(now_ns)
                delays_seconds.append((now_ns - int(event.group(1))) / 1e9)
                read_to = event.end()
        _check_status(data)
        return Stream((arrivals_ns[0] - started_ns) / 1e9, tuple(delays_seconds))

    def _receive(self) -> bytes:
        data = self._socket.recv(READ_BYTES)
        if not data:
            message = "the connection was closed before the answer's end"
            raise RuntimeError(message)
        return data


def _read_length(head: bytes) -> int:
    length = _LENGTH.search(head)
    if length is None:
        message = "the answer has no Content-Length"
        raise RuntimeError(message)
    return int(length.group(1))


def _check_status(head: bytes) -> None:
    if not head.startswith(b"HTTP/1.1 200 "):
        message = f"answered {head[:300]!r}"
        raise RuntimeError(message)
