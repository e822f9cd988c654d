"""A relay between a client and the proxy that copies every byte and keeps the client's requests."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from yarl import URL

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass
class WireTap:
    """A relay, which clients reach at `url`. `bodies`: the bodies of requests, in the order of completion."""

    url: str
    bodies: list[bytes] = field(default_factory=list)

    @property
    def chats(self) -> list[dict[str, Any]]:
        """The bodies, decoded from JSON."""
        return [orjson.loads(body) for body in self.bodies]

    def bodies_for(self, model: str) -> list[bytes]:
        """The bodies of the requests for a model."""
        return [body for body in self.bodies if orjson.loads(body)["model"] == model]


@asynccontextmanager
async def tap_wire(url: str) -> AsyncIterator[WireTap]:
    """Relay connections to the host and port of a URL while the block runs."""
    target = URL(url)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(target.host, target.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(_pump(reader, upstream_writer, _Requests(tap.bodies)))
            group.create_task(_pump(upstream_reader, writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    tap = WireTap(str(target.with_port(server.sockets[0].getsockname()[1])))
    async with server:
        yield tap


@dataclass
class _Requests:
    """Extracts the bodies of requests from the bytes of one connection. Bodies must have a Content-Length."""

    bodies: list[bytes]
    buffer: bytes = b""

    def feed(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self.buffer, 0, end)
            stop = end + 4 + (int(length[1]) if length else 0)
            if len(self.buffer) < stop:
                return
            body, self.buffer = self.buffer[end + 4 : stop], self.buffer[stop:]
            if body:
                self.bodies.append(body)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, requests: _Requests | None = None) -> None:
    """Copy one direction. The end of the input is passed on as an end, an abort as an abort."""
    try:
        while data := await reader.read(65536):
            if requests is not None:
                requests.feed(data)
            writer.write(data)
            await writer.drain()
        writer.close()
    except OSError:
        writer.transport.abort()
