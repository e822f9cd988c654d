"""A small HTTP proxy on real sockets: CONNECT and requests in absolute form, with or without a password.

It resolves every host name to 127.0.0.1, so that tests can use upstream names of other hosts.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from upstreams.sockets import listen

_LENGTH = re.compile(rb"(?im)^content-length: *(\d+)\r$")
_OWN_LINE = re.compile(rb"(?im)^(?:proxy-[a-z]+|connection): [^\r]*\r\n")
REFUSED = b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 4\r\n\r\ngo!\n"


@dataclass
class ForwardProxy:
    """A proxy, and what it received.

    heads: the requests as received, oldest first, without the blank line.
    wants: the only accepted `Proxy-Authorization`; None accepts any request.
    answer: if set, it is sent as the response to every request.
    silent: no request gets a response.
    """

    address: str = ""
    heads: list[bytes] = field(default_factory=list)
    wants: bytes | None = None
    answer: bytes | None = None
    established: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
    silent: bool = False

    @property
    def targets(self) -> list[bytes]:
        """Method and target of each request, without trimtab's questions about context windows and without repeats."""
        lines = [head.split(b" HTTP/1.1\r\n")[0] for head in self.heads if b"Accept: application/json" not in head]
        return list(dict.fromkeys(lines))


@asynccontextmanager
async def run_forward_proxy(tls: ssl.SSLContext | None = None) -> AsyncIterator[ForwardProxy]:
    """Run the proxy on a free port while the block runs."""
    proxy = ForwardProxy()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            head = (await reader.readuntil(b"\r\n\r\n"))[:-2]
            await _serve_one(proxy, head, reader, writer)
            await writer.drain()

    async with listen(serve, tls) as proxy.address:
        yield proxy


async def _serve_one(
    proxy: ForwardProxy, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    proxy.heads.append(head[:-2])
    if proxy.silent:
        await reader.read()
        writer.close()
    elif proxy.answer is not None:
        writer.write(proxy.answer)
        writer.close()
    elif proxy.wants is not None and b"Proxy-Authorization: " + proxy.wants + b"\r\n" not in head:
        writer.write(REFUSED)
        writer.close()
    elif head.startswith(b"CONNECT "):
        await _tunnel(proxy, head, reader, writer)
    else:
        await _forward(head, reader, writer)


async def _tunnel(proxy: ForwardProxy, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    port = int(head.split(b" ")[1].rpartition(b":")[2])
    upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(proxy.established)
    with closing(upstream_writer):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_pump(reader, upstream_writer))
            tasks.create_task(_pump(upstream_reader, writer))


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await source.read(65_536):
            target.write(piece)
            await target.drain()
    target.close()


async def _forward(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send one request in absolute form to its upstream, in origin form. The client's connection stays open."""
    method, target, version = head.split(b"\r\n")[0].split(b" ")
    parts = urlsplit(target.decode())
    origin = target.partition(b"://")[2].partition(b"/")
    lines = _OWN_LINE.sub(b"", head.partition(b"\r\n")[2]) + b"Connection: close\r\n\r\n"
    length = _LENGTH.search(head)
    body = await reader.readexactly(int(length[1])) if length else b""
    upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", parts.port or 80)
    with closing(upstream_writer):
        upstream_writer.write(b"%s /%s %s\r\n" % (method, origin[2], version) + lines + body)
        answer = await upstream_reader.readuntil(b"\r\n\r\n")
        writer.write(answer.replace(b"Connection: close\r\n", b"", 1))
        size = _LENGTH.search(answer)
        writer.write(await (upstream_reader.readexactly(int(size[1])) if size else upstream_reader.read()))
