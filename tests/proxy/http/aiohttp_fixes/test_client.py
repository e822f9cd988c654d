"""A plain request has the same bytes and errors as with aiohttp's own session."""

import asyncio
import gc
import select
import socket
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict
from upstreams.sockets import listen
from yarl import URL

from trimtab.proxy.http.aiohttp_fixes.client import Connector, SendSettings, send_plainly
from trimtab.proxy.http.aiohttp_fixes.server import keep_header_bytes
from trimtab.proxy.http.aiohttp_fixes.tunnels import Request

SKIPPED = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: 1\r\nX-a: 2\r\n\r\nok"
WAY = SendSettings(aiohttp.ClientTimeout(total=None, connect=5, sock_read=5), tls=True)
TOKEN = st.text("abcdefghijklmnopqrstuvwxyzXYZ-_", min_size=1, max_size=12).map(lambda name: f"X{name}")
VALUE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20)


@asynccontextmanager
async def _recording() -> AsyncIterator[tuple[URL, list[bytes]]]:
    """An upstream that keeps the bytes of each request: the head, and as much of the body as it announces."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            seen.append(head + await reader.readexactly(length))
            writer.write(ANSWER)

    async with listen(serve) as address:
        yield URL(f"http://{address}/v1/x"), seen


def _session() -> aiohttp.ClientSession:
    keep_header_bytes()
    return aiohttp.ClientSession(
        connector=Connector(), request_class=Request, skip_auto_headers=SKIPPED, auto_decompress=False
    )


@settings(deadline=None, max_examples=25)
@given(fields=st.lists(st.tuples(TOKEN, VALUE), max_size=6), body=st.binary(max_size=40_000))
def test_the_bytes_are_those_of_aiohttps_own_session(fields: list[tuple[str, str]], body: bytes) -> None:
    """Names, values, duplicates and their order; the body after them; and the response."""

    async def send_both() -> None:
        headers = CIMultiDict([*fields, ("Content-Length", str(len(body)))])
        async with _recording() as (url, seen), _session() as session:
            async with session.post(url, data=body, headers=headers, timeout=WAY.timeout) as theirs:
                expected = (theirs.status, theirs.raw_headers, await theirs.read())
            ours = await send_plainly(session, url, CIMultiDict(headers), (body[:7], body[7:]), WAY)
            assert (ours.status, ours.raw_headers, await ours.read()) == expected
        assert seen[0] == seen[1]

    asyncio.run(send_both())


async def test_a_connection_is_kept_and_used_again() -> None:
    async with _recording() as (url, seen), _session() as session:
        for number in range(3):
            response = await send_plainly(session, url, CIMultiDict({"Content-Length": "1"}), (b"x",), WAY)
            assert await response.read() == b"ok"
            assert len(seen) == number + 1
        assert sum(map(len, session.connector._conns.values())) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [(b"", aiohttp.ServerDisconnectedError), (b"no HTTP\r\n\r\n", aiohttp.ClientResponseError)],
    ids=["hangs up", "speaks no HTTP"],
)
async def test_what_is_no_answer_is_told_as_aiohttp_tells_it(answer: bytes, error: type[Exception]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    async with listen(serve) as address, _session() as session:
        with pytest.raises(error):
            await send_plainly(session, URL(f"http://{address}/"), CIMultiDict({"Content-Length": "1"}), (b"x",), WAY)
        assert not any(session.connector._conns.values())


async def test_a_header_that_would_end_the_head_is_not_sent() -> None:
    async with _recording() as (url, seen), _session() as session:
        headers = CIMultiDict({"X-A": "1\r\nX-B: 2", "Content-Length": "1"})
        with pytest.raises(ValueError, match="control character"):
            await send_plainly(session, url, headers, (b"x",), WAY)
        assert seen == []


# Connections to an upstream that may close them at any time.


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
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(self.head)


@asynccontextmanager
async def _running() -> AsyncIterator[_Upstream]:
    upstream = _Upstream()
    async with listen(upstream.serve) as address:
        upstream.url = f"http://{address}/"
        yield upstream


async def test_a_kept_connection_that_is_reset_is_no_fault():
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
