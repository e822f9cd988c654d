"""An upstream of bare sockets, which can misbehave byte by byte, as one with a library of HTTP cannot.

In what it is told to say, `TYPE` stands for the content type and `BODY` for the whole of a good answer, each as the
client asked for it: an event stream or JSON. `SIZE` is the good answer's length.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
from upstreams.recording import event, write_note
from upstreams.sockets import listen

OK = b"HTTP/1.1 200 OK\r\nContent-Type: TYPE\r\n"
GOOD = OK + b"Content-Length: SIZE\r\n\r\nBODY"
TEXT = "SUMMARY of what was done."
COMPLETION = orjson.dumps({"object": "chat.completion", "choices": [{"message": {"content": write_note(TEXT)}}]})
EVENTS = event("All ") + event("good.") + b"data: [DONE]\n\n"


class Connection:
    """One connection, and the request that is read from it, as far as an act reads it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = b""
        self.body = b""

    async def read_head(self) -> None:
        """Read the request's line and headers."""
        self.head = await self.reader.readuntil(b"\r\n\r\n")

    async def read_request(self) -> None:
        """Read all of it; its length must stand in its headers, or it comes in chunks."""
        await self.read_head()
        if b"chunked" in self.head.lower():
            self.body = await self.reader.readuntil(b"\r\n0\r\n\r\n")
        else:
            length = self.head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self.body = await self.reader.readexactly(int(length or b"0"))

    def good_answer(self) -> bytes:
        """What would be right to say."""
        return EVENTS if b'"stream":true' in self.body else COMPLETION

    def spell(self, said: bytes) -> bytes:
        """The words with what stands for something in them filled in."""
        body = self.good_answer()
        kind = b"text/event-stream" if body is EVENTS else b"application/json"
        return said.replace(b"TYPE", kind).replace(b"SIZE", b"%d" % len(body)).replace(b"BODY", body)

    async def say(self, said: bytes) -> None:
        """Send it, and wait until it has left."""
        self.writer.write(self.spell(said))
        await self.writer.drain()

    async def stall(self) -> None:
        """Say no more until the other side hangs up."""
        while await self.reader.read(65536):
            pass

    def reset(self) -> None:
        """End the connection as a crash does: with a reset, whatever is still to be sent."""
        found = self.writer.get_extra_info("socket")
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Act = Callable[[Connection], Awaitable[None]]


@dataclass
class FaultyUpstream:
    """`url` is the base URL with /v1; what happens on each connection is `act`; `open` are those that stand."""

    url: str = ""
    act: Act | None = None
    open: set[Connection] = field(default_factory=set)
    accepted: int = 0

    def hang_up(self) -> None:
        """End all connections that stand."""
        for connection in list(self.open):
            connection.writer.transport.abort()


def say(*said: bytes, then: Act | None = None) -> Act:
    """Read the request, say one thing after the other, each on its own; then end the connection, or do otherwise."""

    async def act(connection: Connection) -> None:
        await connection.read_request()
        for words in said:
            await connection.say(words)
            await asyncio.sleep(0)
        if then is not None:
            await then(connection)

    return act


async def serve_well(connection: Connection) -> None:
    """Good answers, one after the other, until the other side has no more questions."""
    while True:
        await connection.read_request()
        await connection.say(GOOD)


async def stall(connection: Connection) -> None:
    """Be silent."""
    await connection.stall()


async def reset(connection: Connection) -> None:
    """Crash."""
    connection.reset()


@asynccontextmanager
async def run_faulty_upstream() -> AsyncIterator[FaultyUpstream]:
    """The server on a free port, for as long as the block runs. It serves well until it is told otherwise."""
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
