"""Bodies that come slowly, stop, or are too many: refused, and the proxy stays free for others."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from support.client import CHAT, ask_raw, post
from upstreams.raw import OK, RawUpstream, run_raw_upstream
from yarl import URL

PATHS = [b"/v1/chat/completions", b"/v1/files"]


@pytest.fixture
async def raw() -> AsyncIterator[RawUpstream]:
    """An upstream of bare sockets."""
    async with run_raw_upstream() as upstream:
        yield upstream


def _head(path: bytes, length: int) -> bytes:
    return b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % length


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_stops_sending_is_refused(path, raw, start_proxy, log):
    """408 and the end of the connection, whether the body is read whole or streams through."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "limits.client_silence_seconds=0.1")
    answer = await ask_raw(proxy.url, _head(path, 100) + b'{"model":')
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"Connection: close" in answer
    assert b'"code":"request_timeout"' in answer
    await asyncio.wait_for(proxy.services.lifecycle.idle.wait(), 30)
    assert (log.lines[-1]["status"], log.lines[-1]["error"]) == (408, "request_timeout")


async def test_a_client_that_drips_is_refused(raw, start_proxy):
    """Each byte comes soon enough, but the average rate is too low."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "limits.client_silence_seconds=0.3")
    url = URL(proxy.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(_head(PATHS[0], 100_000))
    reading = asyncio.ensure_future(reader.readline())
    async with asyncio.timeout(30):
        while not reading.done():
            writer.write(b" ")
            await asyncio.wait([reading], timeout=0.05)
    assert (await reading).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_an_upstream_that_takes_its_time_is_not_the_clients_fault(start_proxy):
    """The client's upload stops when the sockets are full. Such a client does not count as silent."""
    release = asyncio.Event()
    size_bytes = 50_000_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()  # what has come stays in the socket
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(size_bytes)
        writer.write(OK)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        proxy = await start_proxy(f"upstream.base_url={base_url}", "limits.client_silence_seconds=2")
        url = URL(proxy.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(_head(b"/v1/files", size_bytes) + bytes(size_bytes))
        reading = asyncio.ensure_future(reader.readline())
        assert await asyncio.wait([reading], timeout=3) == (set(), {reading})
        assert writer.transport.get_write_buffer_size() > size_bytes // 2
        release.set()
        assert await asyncio.wait_for(reading, 30) == b"HTTP/1.1 200 OK\r\n"
        writer.close()


@pytest.mark.parametrize("most_bytes", [1024, 1024 * 1024])
async def test_bodies_that_are_held_are_bounded_together(most_bytes, upstream, start_proxy, client):
    """A body that does not fit is refused with 503. When the others are done, it is accepted.

    A short one comes with its head, a long one in pieces.
    """
    proxy = await start_proxy(f"limits.max_held_bytes={most_bytes}")
    arrived, release = asyncio.Event(), asyncio.Event()

    async def hold(_recorded, _request):
        arrived.set()
        await release.wait()
        return web.Response()

    upstream.answer = hold
    url = proxy.url + "/v1/chat/completions"
    body = CHAT | {"x": "a" * (most_bytes // 2)}
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(post(client, url, body))
        await asyncio.wait_for(arrived.wait(), 30)
        refused, answer = await post(client, url, body)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert b"limits.max_held_bytes" in answer
        release.set()
    assert first.result()[0].status == 200
    assert (await post(client, url, body))[0].status == 200
    await asyncio.wait_for(proxy.services.lifecycle.idle.wait(), 30)
    assert proxy.services.uploads.left_bytes == most_bytes
