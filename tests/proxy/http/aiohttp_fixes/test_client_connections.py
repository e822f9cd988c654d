"""Connections to an upstream that may close them at any time."""

import asyncio
import gc
import select
import socket
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp

from trimtab.proxy.http.aiohttp_fixes.client import Connector

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
UNASKED = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nanother"


@dataclass
class _Upstream:
    """Sends the head of an answer to each request, and leaves its body to the test."""

    url: str = ""
    head: bytes = HEAD
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(self.head)
        writer.close()


@asynccontextmanager
async def _running() -> AsyncIterator[_Upstream]:
    upstream = _Upstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    async with server:
        upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        yield upstream
    for writer in upstream.writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_kept_connection_that_is_reset_is_no_fault():
    """The library logs no unretrieved exception for it."""
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    async with _running() as upstream, aiohttp.ClientSession(connector=Connector()) as session:
        response = await session.get(upstream.url)
        closed = response.connection.protocol.closed
        upstream.writers[0].write(b"body")
        assert await response.read() == b"body"
        connection = upstream.writers[0].get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        upstream.writers[0].transport.abort()
        await asyncio.wait({closed}, timeout=30)
        assert closed.done()
        del closed, response
        (await session.get(upstream.url)).close()  # the dead connection is found, and dropped
        gc.collect()
        assert told == []


async def test_what_an_upstream_says_unasked_is_nobodys_answer():
    async with _running() as upstream, aiohttp.ClientSession(connector=Connector()) as session:
        for number in range(1, 4):
            response = await session.get(upstream.url)
            assert len(upstream.writers) == number  # the one before is not used again
            protocol = response.connection.protocol
            upstream.writers[-1].write(b"body")
            assert await response.read() == b"body"
            upstream.writers[-1].write(UNASKED)
            async with asyncio.timeout(30):
                while not protocol.should_close:  # noqa: ASYNC110 - aiohttp tells nobody
                    await asyncio.sleep(0)  # until it has come


async def test_bytes_behind_a_later_response_do_not_cost_it():
    """On a kept connection, and with a head in two segments."""
    async with _running() as upstream, aiohttp.ClientSession(connector=Connector()) as session:
        first = await session.get(upstream.url)
        protocol = first.connection.protocol
        upstream.writers[0].write(b"body")
        assert await first.read() == b"body"
        upstream.head = HEAD[:20]
        second = asyncio.ensure_future(session.get(upstream.url))
        async with asyncio.timeout(30):
            while not protocol.arrived:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)
        upstream.writers[0].write(HEAD[20:] + b"next}")
        assert await (await second).read() == b"next"
        assert len(upstream.writers) == 1


async def test_a_connection_whose_end_has_come_is_not_used_again():
    """Even if the event loop has not noticed the end yet. The request is not lost."""
    may_close, seen = threading.Event(), []

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(65536))
                connection.sendall(HEAD + b"body")
                may_close.wait(30)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        async with aiohttp.ClientSession(connector=Connector()) as session:
            async with session.post(url, data=b"x") as response:
                assert await response.read() == b"body"
            kept = session.connector._conns.values()
            (protocol,) = [protocol for pool in kept for protocol, _ in pool]
            may_close.set()
            ready, _, _ = select.select([protocol.transport.get_extra_info("socket").fileno()], [], [], 30)
            assert ready
            assert protocol.is_connected()  # the loop knows nothing
            async with session.post(url, data=b"x") as response:
                assert await response.read() == b"body"
        await asyncio.to_thread(server.join, 30)
    assert len(seen) == 2
