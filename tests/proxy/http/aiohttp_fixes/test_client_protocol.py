"""Read timeouts of an upstream, and the end of its connection."""

import asyncio
import socket
from typing import Any

import aiohttp
import pytest
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage

from trimtab.proxy.http.aiohttp_fixes.client import UpstreamProtocol

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
    """The time runs from the last piece on."""
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
    """An idle connection may be silent for any time."""
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


async def test_a_body_whose_connection_has_ended_breaks_off():
    """Its reader gets an error, even if the parser fails at the end."""
    protocol = _connect(None)
    protocol.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
    _, body = await _read(protocol)
    assert await body.readany() == b"half"
    protocol.data_received(b"no length\r\n")  # the parser fails, and aiohttp closes the connection
    protocol.connection_lost(None)
    with pytest.raises(aiohttp.ClientPayloadError):
        await asyncio.wait_for(body.readany(), 30)


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
]


@pytest.mark.parametrize("behind", [b"{}", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}"])
@pytest.mark.parametrize("whole", WHOLE)
async def test_bytes_behind_a_response_cost_the_connection_and_not_the_response(whole: bytes, behind: bytes):
    """Wherever its segments end."""
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
