"""Read timeouts of an upstream, and the end of its connection."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from hypothesis import given
from hypothesis import strategies as st
from upstreams.sockets import listen

from trimtab.proxy.http.aiohttp_fixes.client import Connector, Follower, UpstreamProtocol, follow

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"


class _Transport(asyncio.Transport):
    """A transport that takes everything and does nothing with it."""

    def __init__(self, extra: dict[str, Any] | None = None) -> None:
        super().__init__(extra)
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def _connect(read_timeout: float | None) -> UpstreamProtocol:
    protocol = UpstreamProtocol(asyncio.get_running_loop())
    protocol.connection_made(_Transport())
    protocol.set_response_params(read_timeout=read_timeout, read_until_eof=True)
    return protocol


async def _read(protocol: UpstreamProtocol) -> tuple[RawResponseMessage, aiohttp.StreamReader]:
    return await asyncio.wait_for(protocol.read(), 30)


async def test_a_body_that_stops_is_given_up():
    protocol = _connect(0.02)
    protocol.start_timeout()
    protocol.data_received(HEAD + b"bo")
    _, body = await _read(protocol)
    assert await body.readany() == b"bo"
    with pytest.raises(aiohttp.SocketTimeoutError):
        await asyncio.wait_for(body.readany(), 30)


async def test_each_piece_gives_the_next_one_the_whole_time():
    """One timer serves all of them. If something has arrived since, it is set again."""
    protocol = _connect(0.5)
    protocol.start_timeout()
    before = protocol._fires_at
    protocol._look()  # as if it were time, before anything is overdue
    assert protocol.exception() is None
    protocol.data_received(HEAD)
    assert protocol._deadline >= before
    assert protocol._fires_at >= before


async def test_between_two_answers_nobody_is_waited_for():
    protocol = _connect(0.01)
    protocol.start_timeout()
    protocol.data_received(HEAD + b"body")
    _, body = await _read(protocol)
    assert await body.read() == b"body"
    protocol._look()
    assert protocol.exception() is None
    assert not protocol.should_close


async def test_a_shorter_time_is_kept_after_a_longer_one():
    """Two upstreams of the configuration may share a connection, and differ in their time-outs."""
    protocol = _connect(600)
    protocol.start_timeout()
    protocol.data_received(HEAD + b"body")
    await (await _read(protocol))[1].read()
    protocol.set_response_params(read_timeout=0.01, read_until_eof=True)
    protocol.start_timeout()
    with pytest.raises(aiohttp.SocketTimeoutError):
        await _read(protocol)


@pytest.mark.parametrize("way", ["lost", "closed"])
async def test_a_connection_that_has_ended_leaves_no_timer(way: str):
    protocol = _connect(600)
    protocol.start_timeout()
    assert protocol._read_timeout_handle is not None
    protocol.close() if way == "closed" else protocol.connection_lost(None)
    assert protocol._read_timeout_handle is None


async def test_a_connection_that_takes_nothing_is_not_kept_and_not_timed():
    """The read timeout starts when the upstream has taken the whole request."""
    protocol = _connect(600)
    protocol.pause_writing()
    assert protocol.should_close
    assert protocol._read_timeout_handle is None
    protocol.resume_writing()
    assert not protocol.should_close
    assert protocol._read_timeout_handle is not None
    protocol.close()


WHOLE = [
    HEAD + b"body",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HEAD + b"body",
    b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"body",
]


@pytest.mark.parametrize("behind", [b"{}", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}"])
@pytest.mark.parametrize("whole", WHOLE)
async def test_bytes_behind_a_response_cost_the_connection_and_not_the_response(whole: bytes, behind: bytes):
    for at in range(len(whole) + 1):
        protocol = _connect(600)
        protocol.data_received(whole[: at // 2])
        protocol.data_received(whole[at // 2 : at])
        protocol.data_received(whole[at:] + behind)
        protocol.connection_lost(None)
        message, body = await _read(protocol)
        while message.code < 200:
            message, body = await _read(protocol)
        assert (message.code, await asyncio.wait_for(body.read(), 30)) == (200, b"body")
        assert protocol.should_close


@pytest.mark.parametrize("rest", [b"2\r\nbo\r\nno length\r\n", b"4\r\nbody\r\n0\r\nno field\r\n\r\n"])
async def test_a_response_that_cannot_be_read_to_its_end_is_none(rest: bytes):
    protocol = _connect(600)
    protocol.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + rest)
    with pytest.raises(HttpProcessingError):
        await _read(protocol)


@pytest.mark.parametrize("head", [HEAD, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"])
async def test_nothing_is_kept_of_what_follows_the_last_head(head: bytes):
    """Else a WebSocket would take as much memory as has come through it."""
    protocol = _connect(600)
    protocol.data_received(head)
    for _ in range(2):
        protocol.data_received(b"body")
    assert not protocol.arrived
    protocol.close()


@pytest.mark.parametrize(
    ("tells", "is_lost", "arrived"),
    [
        (True, True, HEAD + b"body"),
        (True, True, HEAD + b"bo"),
        (False, True, HEAD + b"bo"),
        (True, False, HEAD + b"body"),
    ],
)
async def test_an_answer_that_has_arrived_is_read_although_sending_failed(
    tells: bool,  # noqa: FBT001 - pytest passes parameters by name
    is_lost: bool,  # noqa: FBT001
    arrived: bytes,
):
    """An upstream may answer before it has read the request, and reset the connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0)
        protocol = UpstreamProtocol(asyncio.get_running_loop())
        protocol.connection_made(_Transport({"socket": ours}))
        protocol.set_response_params(read_timeout=600, read_until_eof=True)
        theirs.sendall(arrived)
        if tells:
            protocol.set_exception(aiohttp.ClientOSError())
        if is_lost:
            protocol.connection_lost(BrokenPipeError())
    _, body = await _read(protocol)
    if arrived.endswith(b"body"):
        assert await asyncio.wait_for(body.read(), 30) == b"body"
    else:
        with pytest.raises(aiohttp.ClientPayloadError):
            await asyncio.wait_for(body.read(), 30)
    assert protocol.should_close


async def test_a_connection_that_failed_with_nothing_in_it_has_no_answer():
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    protocol = UpstreamProtocol(asyncio.get_running_loop())
    protocol.connection_made(_Transport({"socket": ours}))
    protocol.set_response_params(read_timeout=600, read_until_eof=True)
    ours.close()
    theirs.close()
    protocol.connection_lost(BrokenPipeError())
    with pytest.raises(aiohttp.ClientOSError):
        await _read(protocol)


# A followed body is taken in order, each byte once, up to its end or an error.


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def _begin_body(loop: asyncio.AbstractEventLoop) -> tuple[UpstreamProtocol, aiohttp.StreamReader]:
    """A connection that has received the head of a response, and the response's body. Its buffers are small."""
    protocol = UpstreamProtocol(loop)
    protocol.connection_made(_Transport())
    protocol.set_response_params(read_timeout=60, read_until_eof=True, read_bufsize=16)
    protocol.data_received(CHUNKED_HEAD)
    (_, body), *_ = protocol._buffer[0]
    return protocol, body


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=20),
    size=st.integers(1, 200),
    refusals=st.sets(st.integers(0, 20)),
)
def test_each_byte_is_taken_once_and_in_its_order(chunks: list[bytes], size: int, refusals: set[int]) -> None:
    """However the bytes are cut. Bytes after a refusal stay for the caller, who may read on and follow again."""
    wire = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    taken: list[bytes] = []

    def take(chunk: bytes) -> bool:
        taken.append(chunk)
        return len(taken) not in refusals

    async def pass_all() -> None:
        protocol, body = _begin_body(asyncio.get_running_loop())
        follower = protocol.follower = Follower(protocol, body, take)
        for at in range(0, len(wire), size):
            protocol.data_received(wire[at : at + size])
            while follower.over.done() and not body.at_eof():
                assert protocol.follower is None
                taken.append(body.read_nowait())
                follower = protocol.follower = Follower(protocol, body, take)
                follower.look()
        assert follower.over.done()
        assert protocol.follower is None

    asyncio.run(pass_all())
    assert b"".join(taken) == b"".join(chunks)


def _fall_silent(protocol: UpstreamProtocol) -> None:
    protocol._deadline = 0.001
    protocol._look()


def _break(protocol: UpstreamProtocol) -> None:
    protocol.data_received(b"no length\r\n")
    protocol.connection_lost(None)


@pytest.mark.parametrize(
    "end",
    [
        _fall_silent,
        _break,
        lambda protocol: protocol.connection_lost(None),
        lambda protocol: protocol.connection_lost(ConnectionResetError()),
    ],
    ids=["silent", "unreadable", "ended", "reset"],
)
async def test_a_fault_ends_it_and_is_read_by_whoever_reads_on(end: Callable[[UpstreamProtocol], None]) -> None:
    taken: list[bytes] = []
    protocol, body = _begin_body(asyncio.get_running_loop())
    follower = protocol.follower = Follower(protocol, body, lambda chunk: not taken.append(chunk))
    protocol.data_received(b"3\r\none\r\n")
    assert not follower.over.done()
    end(protocol)

    assert (taken, follower.over.done(), protocol.follower) == ([b"one"], True, None)
    with pytest.raises((aiohttp.ClientPayloadError, TimeoutError)):
        await body.readany()
    protocol._drop_timeout()


@pytest.mark.parametrize("has_looked", [False, True])
async def test_who_takes_may_have_gone(has_looked: bool) -> None:  # noqa: FBT001 - pytest passes parameters by name
    """The caller gets the error. The connection has no follower any more and takes what still arrives.

    A follower that has looked is given each piece before that is buffered.
    """
    protocol, body = _begin_body(asyncio.get_running_loop())

    def take(_: bytes) -> bool:
        raise ConnectionResetError

    follower = protocol.follower = Follower(protocol, body, take)
    if has_looked:
        follower.look()
    protocol.data_received(b"3\r\none\r\n3\r\ntwo\r\n")
    with pytest.raises(ConnectionResetError):
        await follower.over
    assert protocol.follower is None
    protocol._drop_timeout()


async def test_a_body_is_followed_from_what_has_come_to_its_end() -> None:
    """Over a socket. A caller that stops before the end has no follower any more."""
    more, taken = asyncio.Event(), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED_HEAD + b"3\r\none\r\n")
        await more.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    def take(chunk: bytes) -> bool:
        taken.append(chunk)
        more.set()
        return True

    async with (
        listen(serve) as address,
        aiohttp.ClientSession(connector=Connector()) as session,
        session.get(f"http://{address}/") as answer,
    ):
        protocol = answer.connection.protocol
        left = asyncio.ensure_future(follow(answer, lambda _: True))
        left.cancel()
        await asyncio.wait({left})
        assert isinstance(protocol, UpstreamProtocol)
        assert protocol.follower is None
        await asyncio.wait_for(follow(answer, take), 30)
        assert (b"".join(taken), await answer.content.readany()) == (b"onetwo", b"")
        assert protocol.follower is None


async def test_a_piece_behind_the_callers_cancellation_breaks_nothing() -> None:
    """The follower is told of it a turn of the loop later, and the client may have gone."""
    protocol, body = _begin_body(asyncio.get_running_loop())

    def take(_: bytes) -> bool:
        raise ConnectionResetError

    follower = protocol.follower = Follower(protocol, body, take)
    follower.look()
    follower.over.cancel()
    protocol.data_received(b"3\r\none\r\n")
    assert body.exception() is None
    assert protocol.follower is None
    protocol._drop_timeout()


@pytest.mark.parametrize("is_open", [False, True])
async def test_nobody_waits_for_ever_behind_a_fault_of_ours(is_open: bool) -> None:  # noqa: FBT001 - as above
    """The caller is cancelled, and the exception goes to the event loop's handler."""
    protocol, body = _begin_body(asyncio.get_running_loop())

    def fail(_: bytes) -> bool:
        message = "planted"
        raise ZeroDivisionError(message)

    follower = protocol.follower = Follower(protocol, body, fail)
    follower.is_open = is_open
    if not is_open:
        body.feed_data(b"x")
    with pytest.raises(ZeroDivisionError):
        body.feed_data(b"x") if is_open else follower.look()
    assert follower.over.cancelled()
    assert protocol.follower is None
