"""An upstream on plain sockets that can misbehave at any byte, which an HTTP library would prevent.

In the bytes that it is given, `TYPE` stands for the content type and `BODY` for a complete good response. Both are an
event stream or JSON, as the client asked. `SIZE` stands for the length of the good response, and `ZIPPED` for the same
response in gzip.
"""

import asyncio
import gzip
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from support.dialects.spoken.all_dialects import find_dialect
from support.dialects.spoken.dialect import Dialect
from upstreams.recording import write_note
from upstreams.sockets import listen

OK = b"HTTP/1.1 200 OK\r\nContent-Type: TYPE\r\n"
GOOD = OK + b"Content-Length: SIZE\r\n\r\nBODY"
TEXT = "SUMMARY of what was done."


def good_answer(dialect: Dialect, *, is_stream: bool) -> bytes:
    """The body of a right response: a note, or a stream of two texts."""
    return b"".join(dialect.write_events("All ", "good.")) if is_stream else dialect.write_answer(write_note(TEXT))


def zip_answer(body: bytes) -> bytes:
    """The same bytes for the same body."""
    return gzip.compress(body, mtime=0)


class Connection:
    """One connection, and the parts of its request that were read so far."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = b""
        self.body = b""
        self.is_unread = False

    def unread(self) -> None:
        """Let the next call of `read_head` or `read_request` find the request that was read last."""
        self.is_unread = True

    async def read_head(self) -> None:
        """Read the request line and the headers."""
        if self.is_unread:
            self.is_unread = False
            return
        self.head = await self.reader.readuntil(b"\r\n\r\n")

    async def read_request(self) -> None:
        """Read the whole request. It must have a Content-Length, or be chunked."""
        if self.is_unread:
            self.is_unread = False
            return
        await self.read_head()
        if b"chunked" in self.head.lower():
            self.body = await self.reader.readuntil(b"\r\n0\r\n\r\n")
        else:
            length = self.head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self.body = await self.reader.readexactly(int(length or b"0"))

    def spell(self, said: bytes) -> bytes:
        """The bytes with TYPE, SIZE, BODY and ZIPPED replaced."""
        if not any(word in said for word in (b"TYPE", b"SIZE", b"BODY", b"ZIPPED")):
            return said  # as of most of an answer that is sent byte by byte
        path, is_stream = self.head.partition(b" ")[2].partition(b" ")[0], b'"stream":true' in self.body
        body = good_answer(find_dialect(path.decode()), is_stream=is_stream)
        kind = b"text/event-stream" if is_stream else b"application/json"
        said = said.replace(b"TYPE", kind).replace(b"SIZE", b"%d" % len(body)).replace(b"BODY", body)
        return said.replace(b"ZIPPED", zip_answer(body))

    async def say(self, said: bytes) -> None:
        """Send the bytes, and wait until they are written."""
        self.writer.write(self.spell(said))
        await self.writer.drain()

    async def stall(self) -> None:
        """Send nothing more until the other side disconnects."""
        while await self.reader.read(65536):
            pass

    def reset(self) -> None:
        """End the connection with a reset, as a crash does. Unsent bytes are lost."""
        found = self.writer.get_extra_info("socket")
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Act = Callable[[Connection], Awaitable[None]]


@dataclass
class FaultyUpstream:
    """An upstream with the base URL `url` (with /v1).

    act: what happens on each connection.
    open: the connections that are open now.
    """

    url: str = ""
    act: Act | None = None
    open: set[Connection] = field(default_factory=set)
    accepted: int = 0

    def hang_up(self) -> None:
        """End all open connections."""
        for connection in list(self.open):
            connection.writer.transport.abort()


def say(*said: bytes, then: Act | None = None) -> Act:
    """Read the request, send each piece separately, call `then` if it is given, and end the connection."""

    async def act(connection: Connection) -> None:
        await connection.read_request()
        for words in said:
            await connection.say(words)
            await asyncio.sleep(0)
        if then is not None:
            await then(connection)

    return act


async def serve_well(connection: Connection) -> None:
    """Send good responses until the other side sends no more requests."""
    while True:
        await connection.read_request()
        await connection.say(GOOD)


async def stall(connection: Connection) -> None:
    """Send nothing."""
    await connection.stall()


async def reset(connection: Connection) -> None:
    connection.reset()


@asynccontextmanager
async def run_faulty_upstream() -> AsyncIterator[FaultyUpstream]:
    """Run the server on a free port while the block runs. It answers well until its `act` is replaced."""
    upstream = FaultyUpstream(act=serve_well)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        upstream.open.add(connection)
        upstream.accepted += 1
        try:
            assert upstream.act is not None
            await upstream.act(connection)
        finally:
            upstream.open.discard(connection)

    async with listen(serve) as address:
        upstream.url = f"http://{address}/v1"
        yield upstream
