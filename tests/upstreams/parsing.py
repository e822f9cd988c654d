"""An upstream that keeps every byte it receives, and reads it with another parser than the proxy's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import h11
from upstreams.sockets import listen

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class ParsingUpstream:
    """An upstream that gives `answer` to every request. `connections`: the bytes received on each connection."""

    answer: bytes = PLAIN
    url: str = ""
    connections: list[bytearray] = field(default_factory=list)

    @property
    def requests(self) -> list[tuple[str, str, bytes]]:
        """Method, target and body of each complete request that h11 finds. Raises RemoteProtocolError."""
        return [
            (request.method.decode(), request.target.decode(), body)
            for received in self.connections
            for request, body in read_requests(bytes(received))
        ]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of all requests."""
        return [
            header
            for received in self.connections
            for request, _ in read_requests(bytes(received))
            for header in request.headers
        ]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the other side ends it."""
        received = bytearray()
        self.connections.append(received)
        answered = 0
        with suppress(h11.RemoteProtocolError):
            while data := await reader.read(65536):
                received += data
                whole = len(read_requests(bytes(received)))
                writer.write(self.answer * (whole - answered))
                answered = whole


def read_requests(received: bytes) -> list[tuple[h11.Request, bytes]]:
    """The complete requests in the bytes of one connection. Raises h11.RemoteProtocolError."""
    requests: list[tuple[h11.Request, bytes]] = []
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(received)
    head, body = None, b""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            head, body = event, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            requests.append((head, body))
            connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
            connection.send(h11.EndOfMessage())
            connection.start_next_cycle()
        else:
            return requests


@asynccontextmanager
async def run_parsing_upstream(answer: bytes = PLAIN) -> AsyncIterator[ParsingUpstream]:
    """Run the server on a free port while the block runs."""
    upstream = ParsingUpstream(answer)
    async with listen(upstream.serve) as address:
        upstream.url = f"http://{address}/v1"
        yield upstream
