"""Responses that end too early, and clients that do not read: the client notices each cut, and nothing piles up."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from itertools import cycle, product

import orjson
import pytest
from support.dialects.spoken.all_dialects import DIALECTS, find_dialect
from support.dialects.spoken.chat import CHAT
from upstreams.raw import RawRequest, RawUpstream, run_raw_upstream
from yarl import URL

HEADS = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n",
    "chunks": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    "connection": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
}
PATHS = [*(dialect.path for dialect in DIALECTS), "/v1/files"]
CUTS = [("length", "close"), ("length", "reset"), ("chunks", "close"), ("chunks", "reset"), ("connection", "reset")]


@pytest.fixture
async def raw() -> AsyncIterator[RawUpstream]:
    async with run_raw_upstream() as upstream:
        yield upstream


def _request(path: str, version: bytes = b"1.1") -> bytes:
    body = orjson.dumps(find_dialect(path).write([{"role": "user", "content": "hi"}], stream=True))
    head = b"POST " + path.encode() + b" HTTP/" + version + b"\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def _frame(framing: str, piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece) if framing == "chunks" else piece


async def _open(url: str, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request)
    return reader, writer


@pytest.mark.parametrize(
    ("framing", "ending", "version", "path"),
    [(*how, more, path) for (how, more), path in zip(product(CUTS, (b"1.0", b"1.1")), cycle(PATHS), strict=False)],
)
async def test_an_answer_that_is_cut_ends_in_a_reset(framing, ending, version, path, *, raw, start_proxy, log):
    """The client never sees a clean end, for any framing of the response and any HTTP version."""
    received = asyncio.Event()

    async def cut(_request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(HEADS[framing] + _frame(framing, find_dialect(path).write_event("one")))
        await received.wait()
        if ending == "reset":
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    raw.answer = cut
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    reader, writer = await _open(proxy.url, _request(path, version))
    async with asyncio.timeout(30):
        await reader.readuntil(find_dialect(path).write_event("one"))
        received.set()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await proxy.services.lifecycle.idle.wait()
    assert log.lines[-1]["outcome"] == "broken"
    writer.close()


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_does_not_read_stops_the_upstream(path, raw, start_proxy):
    """From an endless response, the proxy reads only what the sockets and two small buffers hold."""
    stuck = asyncio.Event()
    sent_megabytes = 0

    async def pour(_request: RawRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal sent_megabytes
        writer.write(HEADS["connection"])
        try:
            while sent_megabytes < 100:
                writer.write(find_dialect(path).write_event("a" * 1_000_000))
                async with asyncio.timeout(0.5):
                    await writer.drain()
                sent_megabytes += 1
        except TimeoutError:
            stuck.set()
        writer.transport.abort()

    raw.answer = pour
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    _, writer = await _open(proxy.url, _request(path))
    await asyncio.wait_for(stuck.wait(), 30)
    assert sent_megabytes < 50
    writer.transport.abort()
    await asyncio.wait_for(proxy.services.lifecycle.idle.wait(), 30)


async def test_a_client_that_never_reads_again_is_let_go(raw, start_proxy, monkeypatch, log):
    """Its request ends after a time limit, and the upstream's connection is closed too."""
    monkeypatch.setattr("trimtab.proxy.server.connections.STALLED_SECONDS", 0.2)

    async def pour(_request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(HEADS["connection"])
        while True:
            writer.write(CHAT.write_event("a" * 1_000_000))
            await writer.drain()

    raw.answer = pour
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    reader, writer = await _open(proxy.url, _request(CHAT.path))
    async with asyncio.timeout(30):
        await reader.readline()
        await proxy.services.lifecycle.idle.wait()
    assert log.lines[-1]["outcome"] == "aborted"
    writer.transport.abort()


@pytest.mark.parametrize(("method", "times"), [(b"POST", 1), (b"PATCH", 1), (b"GET", 2), (b"DELETE", 2)])
async def test_what_may_have_been_done_is_never_asked_for_again(method, times, raw, start_proxy):
    """A kept connection is closed instead of an answer. Only an idempotent request is sent once more."""
    dropped = []

    async def drop_second(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        if request.target == b"/v1/second":
            dropped.append(request)
            writer.close()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    raw.answer = drop_second
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "defaults.context_window=8000")
    reader, writer = await _open(proxy.url, method + b" /v1/first HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await asyncio.wait_for(reader.readuntil(b"{}"), 30)
    writer.write(method + b" /v1/second HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b" 502 " in await asyncio.wait_for(reader.readline(), 30)
    assert len(dropped) == times
    writer.close()
