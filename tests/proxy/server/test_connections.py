"""Connections of clients: one task each, and nothing of a request remains for the next one."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from hypothesis import given
from hypothesis import strategies as st
from support.client import wait_until

from trimtab.proxy.http.aiohttp_fixes.server import OwnRequest
from trimtab.proxy.http.errors import BadFramingError
from trimtab.proxy.http.headers import MAX_HEAD_BYTES
from trimtab.proxy.server.app import listen_at
from trimtab.proxy.server.connections import MAX_STOPS, Server

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def _run(handler: Handler) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    server = Server(handler, request_factory=OwnRequest.make, access_log=None, handler_cancellation=True)
    async with listen_at(server, "127.0.0.1:0") as (_, url):
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        try:
            yield reader, writer
        finally:
            writer.close()


async def test_a_connections_requests_are_served_by_one_task() -> None:
    """They are served in their order, whether they arrive together or one after another, or behind empty lines."""
    tasks = set()

    async def note(_: web.BaseRequest) -> web.Response:
        tasks.add(asyncio.current_task())
        return web.Response(text="x")

    async with _run(note) as (reader, writer):
        for number in (1, 2):
            writer.write(number * GET)
            for _ in range(number):
                await asyncio.wait_for(reader.readuntil(b"\r\n\r\nx"), 30)
        writer.write(b"\r\n\r\n" * MAX_STOPS + GET + LAST)
        answer = await asyncio.wait_for(reader.read(), 30)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert len(tasks) == 1


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


@pytest.mark.parametrize("is_whole", [False, True])
async def test_an_answer_to_an_incomplete_request_ends_its_connection(is_whole: bool) -> None:  # noqa: FBT001
    """It says so, or a proxy before us would send another client's request behind the rest of this one."""

    async def refuse(_: web.BaseRequest) -> web.Response:
        return web.Response(status=413)

    async with _run(refuse) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n" + (b"a" * 9 if is_whole else b"a"))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert head.startswith(b"HTTP/1.1 413")
        assert (b"Connection: close" in head) is not is_whole


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


# Where one request ends and the next begins, whatever is between them. See also tests/attack/test_trailers.py.


END = b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
Seen = tuple[str, bytes, tuple[str, ...]]


@asynccontextmanager
async def _run_noting(seen: list[Seen], *, reads: bool = True) -> AsyncIterator[str]:
    """A server that records target, body and field names of each request. Returns its address."""

    async def note(request: web.BaseRequest) -> web.Response:
        body = b"".join([piece async for piece in request.content.iter_any()]) if reads else b""
        if request.raw_path != "/end":
            seen.append((request.raw_path, body, tuple(request.headers)))
        return web.Response(text="x")

    server = Server(note, request_factory=OwnRequest.make, access_log=None)
    async with listen_at(server, "127.0.0.1:0") as (_, url):
        yield url.removeprefix("http://")


async def _send(address: str, pieces: Sequence[bytes]) -> bytes:
    reader, writer = await asyncio.open_connection(*address.split(":"))
    for piece in (*pieces, END):
        writer.write(piece)
        await asyncio.sleep(0)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer


def _write_plain(number: int, body: bytes) -> bytes:
    return b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (number, len(body), body)


def _write_chunked(number: int, body: bytes, trailers: bytes) -> bytes:
    chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    head = b"POST /%d HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % number
    return head + chunk + b"0\r\n" + trailers + b"\r\n"


_BODIES = st.sampled_from(
    [b"", b"ab", b"\r\n\r\n", b"0\r\n\r\n", b"a\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n", b"\r\n\r"]
)
_TRAILERS = st.sampled_from([b"", b"X-T: 1\r\n", b"X-T:\r\n", b"X-T: 1\r\nX-T: 0\r\n"])


@given(
    st.lists(st.tuples(st.booleans(), _BODIES, _TRAILERS), min_size=1, max_size=5),
    st.lists(st.integers(1, 60), max_size=12),
)
def test_every_request_is_read_alone(requests: list[tuple[bool, bytes, bytes]], sizes: list[int]) -> None:
    """In any order, and cut anywhere, each has its own target, body and fields, and no trailer."""
    written = b""
    for number, (is_chunked, body, trailers) in enumerate(requests):
        written += _write_chunked(number, body, trailers) if is_chunked else _write_plain(number, body)
    pieces, start = [], 0
    for size in sizes:
        pieces.append(written[start : start + size])
        start += size
    seen: list[Seen] = []

    async def run() -> None:
        async with _run_noting(seen) as port:
            await _send(port, [*pieces, written[start:]])

    asyncio.run(run())
    assert [(target, body) for target, body, _ in seen] == [(f"/{n}", body) for n, (_, body, _) in enumerate(requests)]
    assert all(names[0] == "Host" and "X-T" not in names for _, _, names in seen)


@pytest.mark.parametrize("lines", [MAX_STOPS - 2, MAX_STOPS, MAX_STOPS * 30])
async def test_a_body_of_empty_lines_is_no_way_around(lines: int) -> None:
    """With too many empty lines, the connection ends after that body. The next request is served alone, or not."""
    seen: list[Seen] = []
    first = _write_chunked(0, b"\r\n\r\n" * lines, b"X-T: 1\r\n")
    async with _run_noting(seen) as port:
        answer = await _send(port, [first + _write_plain(1, b"ab")])
    assert seen[0][:2] == ("/0", b"\r\n\r\n" * lines)
    assert seen[1:] in ([], [("/1", b"ab", ("Host", "Content-Length"))])
    assert answer.count(b"HTTP/1.1 200") in {len(seen), len(seen) + 1}


async def test_more_requests_at_once_than_are_queued_are_all_served() -> None:
    seen: list[Seen] = []
    written = b"".join(
        _write_chunked(number, b"ab", b"X-T: 1\r\n") if number % 3 else _write_plain(number, b"ab")
        for number in range(200)
    )
    async with _run_noting(seen) as port:
        answer = await _send(port, [written])
    assert [target for target, _, _ in seen] == [f"/{number}" for number in range(200)]
    assert answer.count(b"HTTP/1.1 200") == 201
    assert not any("X-T" in names for _, _, names in seen)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("write", [_write_plain, lambda number, body: _write_chunked(number, body, b"")])
async def test_a_request_before_unreadable_bytes_is_answered_first(
    write: Callable[[int, bytes], bytes], *, apart: bool
) -> None:
    seen: list[Seen] = []
    pieces = [write(0, b"ab"), b"no request\r\n\r\n" + _write_plain(1, b"ab")]
    async with _run_noting(seen) as port:
        answer = await _send(port, pieces if apart else [b"".join(pieces)])
    assert [(target, body) for target, body, _ in seen] == [("/0", b"ab")]
    assert re.findall(rb"HTTP/1\.[01] (\d+)", answer) == [b"200", b"400"]


async def test_who_reads_a_body_that_breaks_gets_an_error_at_once() -> None:
    begun, told = asyncio.Event(), list[Exception]()

    async def read(request: web.BaseRequest) -> web.Response:
        begun.set()
        try:
            await request.content.read()
        except BadFramingError as error:
            told.append(error)
        return web.Response()

    async with _run(read) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        await asyncio.wait_for(begun.wait(), 30)
        writer.write(b"no length\r\n")
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 30)
    assert len(told) == 1


async def test_a_whole_request_with_too_large_trailers_has_one_answer() -> None:
    """A second one would be taken for that to the next request on its connection."""
    begun = asyncio.Event()

    async def read(request: web.BaseRequest) -> web.Response:
        begun.set()
        return web.Response(body=await request.content.read())

    async with _run(read) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        await asyncio.wait_for(begun.wait(), 30)
        writer.write(b"0\r\n" + (b"X-A: " + b"a" * 400 + b"\r\n") * 300 + b"\r\n")
        answer = await asyncio.wait_for(reader.read(), 30)
    assert answer.count(b"HTTP/1.") == 1


async def test_a_body_that_nobody_takes_pauses_its_sender_and_loses_nothing() -> None:
    """The rest of a large chunked body waits, and arrives complete."""
    seen: list[Seen] = []
    body = bytes(range(256)) * 8000
    async with _run_noting(seen) as port:
        await _send(port, [_write_chunked(0, body, b"X-T: 1\r\n") + _write_plain(1, b"ab")])
    assert [(target, read) for target, read, _ in seen] == [("/0", body), ("/1", b"ab")]


async def test_a_body_that_is_not_read_leaves_nothing_behind() -> None:
    """It is read to its end and dropped, together with its trailers."""
    seen: list[Seen] = []
    async with _run_noting(seen, reads=False) as port:
        await _send(port, [_write_chunked(0, b"ab" * 500, b"X-T: 1\r\n"), _write_plain(1, b"")])
    assert [names for _, _, names in seen] == [("Host", "Transfer-Encoding"), ("Host", "Content-Length")]


@pytest.mark.parametrize(("head_bytes", "status"), [(MAX_HEAD_BYTES, b"200"), (MAX_HEAD_BYTES + 1, b"431")])
async def test_a_head_is_read_up_to_its_bound_whatever_its_lines_are(head_bytes: int, status: bytes) -> None:
    seen: list[Seen] = []
    begun, end = b"GET /0 HTTP/1.1\r\nHost: a\r\n" + b"X-A: %b\r\n" % (b"a" * 1000) * 63, b"\r\n\r\n"
    head = begun + b"X-B: ".ljust(head_bytes - len(begun) - len(end), b"b") + end
    async with _run_noting(seen) as port:
        answer = await _send(port, [head[: head_bytes // 2], head[head_bytes // 2 :]])
    assert answer.split()[1] == status
    assert len(seen) == (status == b"200")
