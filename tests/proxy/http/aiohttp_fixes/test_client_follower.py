"""A followed body is taken in order, each byte once, up to its end or an error."""

import asyncio
from collections.abc import Callable

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.http.aiohttp_fixes.client import Connector, Follower, UpstreamProtocol, follow

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class _Transport(asyncio.Transport):
    """A transport that takes everything and does nothing with it."""

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def _begin_body(loop: asyncio.AbstractEventLoop) -> tuple[UpstreamProtocol, aiohttp.StreamReader]:
    """A connection that has received the head of a response, and the response's body. Its buffers are small."""
    protocol = UpstreamProtocol(loop)
    protocol.connection_made(_Transport())
    protocol.set_response_params(read_timeout=60, read_until_eof=True, read_bufsize=16)
    protocol.data_received(HEAD)
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
    """The bytes before it are taken, and nobody waits for more."""
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
        writer.write(HEAD + b"3\r\none\r\n")
        await more.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        writer.close()

    def take(chunk: bytes) -> bool:
        taken.append(chunk)
        more.set()
        return True

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, aiohttp.ClientSession(connector=Connector()) as session, session.get(url) as answer:
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
