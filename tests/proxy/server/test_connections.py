"""Connections of clients: one task each, and nothing of a request remains for the next one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from support.client import wait_until

from trimtab.proxy.http.aiohttp_fixes.server import OwnRequest
from trimtab.proxy.server.app import listen_at
from trimtab.proxy.server.connections import Server

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def _run(handler: Handler) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server with this handler."""
    server = Server(handler, request_factory=OwnRequest.make, access_log=None, handler_cancellation=True)
    async with listen_at(server, "127.0.0.1:0") as (_, url):
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        try:
            yield reader, writer
        finally:
            writer.close()


async def test_a_connections_requests_are_served_by_one_task() -> None:
    """They are served in their order, whether they arrive together or one after another."""
    tasks = set()

    async def note(_: web.BaseRequest) -> web.Response:
        tasks.add(asyncio.current_task())
        return web.Response(text="x")

    async with _run(note) as (reader, writer):
        writer.write(GET)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\nx"), 30)
        writer.write(GET + LAST)
        answer = await asyncio.wait_for(reader.read(), 30)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert len(tasks) == 1


async def test_a_client_that_leaves_cancels_its_request() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(_: web.BaseRequest) -> web.Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return web.Response()

    async with _run(wait) as (_, writer):
        writer.write(GET)
        await asyncio.wait_for(begun.wait(), 30)
        writer.close()
        await asyncio.wait_for(cancelled.wait(), 30)


@pytest.mark.parametrize("where", ["before", "in the answer"])
async def test_a_handler_that_breaks_fails_its_own_request_alone(where: str) -> None:
    """Before the answer has begun, the client gets an error. After that, only the end of its connection shows it."""

    async def fail(request: web.BaseRequest) -> web.StreamResponse:
        if where != "before":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"x")
        raise KeyError(where)

    async with _run(fail) as (reader, writer):
        writer.write(GET)
        answer = await asyncio.wait_for(reader.read(), 30)
    assert answer.startswith(b"HTTP/1.1 500" if where == "before" else b"HTTP/1.1 200")
    assert not answer.endswith(b"0\r\n\r\n")


async def test_a_request_that_has_been_served_can_be_read_no_more() -> None:
    """A reader that kept it would wait for bytes of the next request."""
    kept = []

    async def keep(request: web.BaseRequest) -> web.Response:
        kept.append(request)
        return web.Response(text="x")

    async with _run(keep) as (reader, writer):
        writer.write(LAST)
        await asyncio.wait_for(reader.read(), 30)
    assert kept[0].content.exception() is not None or kept[0].content.is_eof()


async def test_a_client_may_send_the_rest_although_its_reader_was_just_given_up() -> None:
    """As when the upstream has answered an upload early: what was to read on has not run since it was cancelled."""
    readers: list[asyncio.Task[bytes]] = []

    async def refuse(request: web.BaseRequest) -> web.Response:
        readers.append(asyncio.ensure_future(request.content.read()))
        await asyncio.sleep(0)
        readers[0].cancel()
        return web.Response(status=401)

    rest_bytes = 32 * 1024 * 1024  # more than the buffers of both sockets hold
    async with _run(refuse) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % rest_bytes)
        assert b" 401 " in await asyncio.wait_for(reader.readline(), 30)
        writer.write(bytes(rest_bytes))
        await asyncio.wait_for(writer.drain(), 30)
        await asyncio.wait_for(reader.read(), 30)


async def test_behind_an_unreadable_request_nothing_is_read() -> None:
    """Not even if it arrives before the connection is closed. A client could fill the memory with it."""
    served, protocols = [], []

    async def note(request: web.BaseRequest) -> web.Response:
        served.append(request)
        return web.Response()

    class Noting(Server):
        def __call__(self) -> RequestHandler:
            protocols.append(super().__call__())
            return protocols[-1]

    server = Noting(note, request_factory=OwnRequest.make, access_log=None, handler_cancellation=True)
    async with listen_at(server, "127.0.0.1:0") as (_, url):
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        writer.write(b"no request\r\n\r\n")
        assert b" 400 " in await asyncio.wait_for(reader.readline(), 30)
        for _ in range(9):
            protocols[0].data_received(GET)
        assert not protocols[0]._messages
        await asyncio.wait_for(reader.read(), 30)
        for _ in range(50):
            await asyncio.sleep(0)
        assert not protocols[0].transport.is_closing()  # else the client might lose what it has not read yet
        writer.close()
    assert served == []


@pytest.mark.parametrize("has_waited", [True, False])
async def test_a_client_that_takes_nothing_is_disconnected(monkeypatch, *, has_waited: bool) -> None:
    """Whatever it was sent, also if only the rest of an answer is left, for which nobody waits."""
    monkeypatch.setattr("trimtab.proxy.server.connections.STALLED_SECONDS", 0.1)
    transports: list[asyncio.Transport] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        transports.append(transport)
        if has_waited:
            return web.Response(body=b"x" * 20_000_000)
        response = web.StreamResponse()
        await response.prepare(request)
        while not transport.get_write_buffer_size():
            await response.write(b"x" * 50_000)
            await asyncio.sleep(0)
        return response

    async with _run(answer) as (reader, writer):
        writer.transport.pause_reading()
        writer.write(LAST)
        await wait_until(lambda: any(one.is_closing() and not one.get_write_buffer_size() for one in transports))
        writer.transport.resume_reading()
        with pytest.raises(ConnectionResetError):
            await reader.read(-1)
