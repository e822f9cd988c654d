"""An upstream on plain sockets that keeps the exact bytes of each request, and answers with any bytes."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from upstreams.sockets import listen

Answer = Callable[["RawRequest", asyncio.StreamWriter], Coroutine[Any, Any, None]]
"""Writes a response. If it closes the writer, the connection ends."""
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_LENGTH = re.compile(rb"(?im)^content-length: *(\d+)\r$")
_CHUNKED = re.compile(rb"(?im)^transfer-encoding: *chunked\r$")


@dataclass(frozen=True, slots=True)
class RawRequest:
    """One request.

    head: its exact bytes, without the blank line.
    body: without its framing.
    reader: yields the bytes that follow.
    """

    head: bytes
    body: bytes
    connection: int
    reader: asyncio.StreamReader

    @property
    def lines(self) -> list[bytes]:
        """The header lines, without the request line."""
        return self.head.split(b"\r\n")[1:]

    @property
    def target(self) -> bytes:
        """The request target as written."""
        return self.head.split(b"\r\n")[0].split(b" ")[1]

    @property
    def asks_for_windows(self) -> bool:
        """Whether trimtab asks for context windows: without a User-Agent, which test clients always send."""
        return b"Accept: application/json" in self.lines and b"user-agent" not in self.head.lower()


@dataclass
class RawUpstream:
    """An upstream whose response is `answer`: bytes, or a coroutine function that writes them."""

    url: str = ""
    answer: bytes | Answer = OK
    requests: list[RawRequest] = field(default_factory=list)
    connections: int = 0


async def _read_request(reader: asyncio.StreamReader, connection: int) -> RawRequest:
    """Read one request from a socket. Raises IncompleteReadError if the connection ends."""
    head = (await reader.readuntil(b"\r\n\r\n"))[:-4] + b"\r\n"
    body = bytearray()
    length = _LENGTH.search(head)
    if _CHUNKED.search(head):
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    elif length:
        body += await reader.readexactly(int(length[1]))
    return RawRequest(head[:-2], bytes(body), connection, reader)


@asynccontextmanager
async def run_raw_upstream(tls: ssl.SSLContext | None = None) -> AsyncIterator[RawUpstream]:
    """Run the server on a free port, with TLS if given. Connections stay open until the client closes them."""
    upstream = RawUpstream()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream.connections += 1
        connection = upstream.connections
        while not writer.is_closing():
            request = await _read_request(reader, connection)
            if request.asks_for_windows:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            upstream.requests.append(request)
            if isinstance(upstream.answer, bytes):
                writer.write(upstream.answer)
            else:
                await upstream.answer(request, writer)
            await writer.drain()

    async with listen(serve, tls) as address:
        upstream.url = f"http{'s' if tls else ''}://{address}/v1"
        yield upstream
