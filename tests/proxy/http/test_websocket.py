"""WebSockets through a running proxy."""

import asyncio
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web
from upstreams.raw import RawRequest, RawUpstream, run_raw_upstream
from upstreams.sockets import listen
from yarl import URL

from trimtab.proxy.http import websocket
from trimtab.proxy.server.app import Proxy


async def test_refused_websocket_is_refused(upstream, start_proxy):
    async def refuse(_recorded, _request):
        return web.Response(status=403, text="no such model", headers={"X-Reason": "model"})

    upstream.answer = refuse
    proxy = await start_proxy()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(proxy.url + "/v1/realtime")
        assert (caught.value.status, caught.value.headers["X-Reason"]) == (403, "model")
        headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
        for _ in range(2):  # on the same connection
            async with session.get(proxy.url + "/v1/realtime", headers=headers) as response:
                assert (response.status, await response.text()) == (403, "no such model")


HANDSHAKE = (
    b"GET /v1/realtime?model=a%2Fb HTTP/1.1\r\nHost: localhost\r\nX-B: 1\r\nAuthorization: Bearer k\r\n"
    b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: abc\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate; x\r\n"
    b"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.k\r\n\r\n"
)


ACCEPTED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: def\r\n"
    b"Sec-WebSocket-Protocol: realtime\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


class Ends:
    """Both ends of a WebSocket through the proxy, as bare sockets."""

    def __init__(self) -> None:
        self.arrived: asyncio.Future[tuple[RawRequest, asyncio.StreamWriter]] = asyncio.Future()
        self.done = asyncio.Event()

    async def accept(self, request: RawRequest, writer: asyncio.StreamWriter) -> None:
        """The upstream's side: accepts, says hello at once, and leaves the rest to the test."""
        writer.write(ACCEPTED + b"hello")
        self.arrived.set_result((request, writer))
        await self.done.wait()
        writer.close()


@pytest.fixture
async def raw() -> AsyncIterator[RawUpstream]:
    async with run_raw_upstream() as upstream:
        yield upstream


@asynccontextmanager
async def open_tunnel(raw: RawUpstream, proxy: Proxy):
    """The client's reader and writer behind the handshake, then the upstream's."""
    ends = Ends()
    raw.answer = ends.accept
    url = URL(proxy.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(HANDSHAKE + b"early")
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n\r\n")
        request, upstream_writer = await ends.arrived
    date = next(line for line in head.split(b"\r\n") if line.startswith(b"Date:"))
    assert sorted(head.split(b"\r\n")) == sorted([*ACCEPTED.split(b"\r\n"), date, b"x-trimtab-outcome: passed"])
    try:
        yield reader, writer, request, upstream_writer
    finally:
        ends.done.set()
        writer.close()


async def test_the_handshake_and_all_that_follows_pass_as_bytes(raw, start_proxy):
    """Key, extensions, subprotocols, and all bytes in both directions, from the first byte on."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    async with open_tunnel(raw, proxy) as (reader, writer, request, upstream_writer), asyncio.timeout(30):
        names = (b"Sec-WebSocket", b"X-B", b"Authorization")
        assert [line for line in request.lines if line.startswith(names)] == [
            line for line in HANDSHAKE.split(b"\r\n") if line.startswith(names)
        ]
        assert (b"Connection: Upgrade" in request.lines, b"Upgrade: websocket" in request.lines) == (True, True)
        assert request.target == b"/v1/realtime?model=a%2Fb"
        assert await reader.readexactly(5) == b"hello"
        assert await request.reader.readexactly(5) == b"early"
        junk = bytes(range(256)) * 4096
        for source, target in ((writer, request.reader), (upstream_writer, reader)):
            source.write(junk)
            assert await target.readexactly(len(junk)) == junk


async def test_an_upstream_that_leaves_ends_the_clients_side(raw, start_proxy, log):
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    async with open_tunnel(raw, proxy) as (reader, _, request, upstream_writer), asyncio.timeout(30):
        await request.reader.readexactly(5)
        upstream_writer.write(b"last words" * 50_000)
        upstream_writer.close()
        assert await reader.read() == b"hello" + b"last words" * 50_000
        await proxy.services.lifecycle.idle.wait()
    assert (log.lines[-1]["status"], log.lines[-1]["outcome"]) == (101, "passed")


@pytest.mark.parametrize("ending", ["close", "abort"])
async def test_a_client_that_leaves_ends_the_upstreams_side(ending, raw, start_proxy):
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    async with open_tunnel(raw, proxy) as (reader, writer, request, _), asyncio.timeout(30):
        await reader.readexactly(5)
        writer.transport.abort() if ending == "abort" else writer.close()
        assert await request.reader.read() == b"early"


async def test_an_end_that_does_not_read_holds_up_the_other(raw, start_proxy):
    """The proxy keeps no more than its buffers: the writer is stopped long before all is sent."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    async with open_tunnel(raw, proxy) as (_, writer, _, upstream_writer):
        for source in (upstream_writer, writer):
            sent_megabytes = 0
            with suppress(TimeoutError):
                while sent_megabytes < 100:
                    source.write(bytes(1 << 20))
                    sent_megabytes += 1
                    async with asyncio.timeout(0.5):
                        await source.drain()
            assert sent_megabytes < 50
        for source in (upstream_writer, writer):
            source.transport.abort()


@pytest.mark.parametrize("silent", ["client", "upstream"])
async def test_an_end_that_never_reads_is_let_go(silent, raw, start_proxy, monkeypatch):
    """Even if the other end has more to send. Otherwise the tunnel would take its place forever."""
    monkeypatch.setattr(websocket, "STALLED_SECONDS", 0.2)
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    async with open_tunnel(raw, proxy) as (_, writer, _, upstream_writer):
        source = upstream_writer if silent == "client" else writer

        async def tell() -> None:
            with suppress(ConnectionError):
                while not source.is_closing():
                    source.write(bytes(1 << 20))
                    await source.drain()

        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(tell())
            await proxy.services.lifecycle.idle.wait()
            telling.cancel()
        source.transport.abort()


async def test_an_upstreams_reset_is_no_clean_end(raw, start_proxy):
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    async with open_tunnel(raw, proxy) as (reader, _, _, upstream_writer), asyncio.timeout(30):
        assert await reader.readexactly(5) == b"hello"
        connection = upstream_writer.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        upstream_writer.transport.abort()
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_a_handshake_with_a_body_swallows_nobodys_request(start_proxy):
    """The upstream responds at once and then reads the announced body. The next client's request stays whole."""
    heads, bodies = [], []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                heads.append(head)
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")
                if length := re.search(rb"(?i)content-length: *(\d+)", head):
                    bodies.append(await reader.readexactly(int(length[1])))
        writer.close()

    async def ask(target: bytes, more: bytes) -> bytes:
        url = URL(proxy.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n" + more + b"\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        writers.append(writer)
        return head

    writers: list[asyncio.StreamWriter] = []
    async with listen(serve) as address:
        upstream = f"upstream.base_url=http://{address}/v1"
        proxy = await start_proxy(upstream, "defaults.context_window=8000", "limits.client_silence_seconds=0.3")
        await ask(b"/v1/realtime", b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 40\r\n")
        assert b" 404 " in await ask(b"/v1/next", b"Authorization: Bearer sk-next\r\n")
        for writer in writers:
            writer.close()
    assert [head for head in heads if head.startswith(b"GET /v1/next ") and b"sk-next" in head]
    assert not [body for body in bodies if b"next" in body]
