"""A plain request has the same bytes and errors as with aiohttp's own session."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict
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
async def _recording(answer: bytes = ANSWER) -> AsyncIterator[tuple[URL, list[bytes]]]:
    """An upstream that keeps the bytes of each request: the head, and as much of the body as it announces."""
    seen: list[bytes] = []
    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.append(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                seen.append(head + await reader.readexactly(length))
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/x"), seen
    if serving:
        await asyncio.wait(serving, timeout=30)


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


async def test_a_new_connection_that_is_refused_is_told_as_aiohttp_tells_it() -> None:
    async with _recording() as (url, _):
        pass
    async with _session() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await send_plainly(session, url, CIMultiDict({"Content-Length": "1"}), (b"x",), WAY)


@pytest.mark.parametrize(
    ("answer", "error"),
    [(b"", aiohttp.ServerDisconnectedError), (b"no HTTP\r\n\r\n", aiohttp.ClientResponseError)],
    ids=["hangs up", "speaks no HTTP"],
)
async def test_what_is_no_answer_is_told_as_aiohttp_tells_it(answer: bytes, error: type[Exception]) -> None:
    """The connection is not used again."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    async with server, _session() as session:
        with pytest.raises(error):
            await send_plainly(session, url, CIMultiDict({"Content-Length": "1"}), (b"x",), WAY)
        assert not any(session.connector._conns.values())


async def test_a_header_that_would_end_the_head_is_not_sent() -> None:
    """No byte of it reaches the upstream."""
    async with _recording() as (url, seen), _session() as session:
        headers = CIMultiDict({"X-A": "1\r\nX-B: 2", "Content-Length": "1"})
        with pytest.raises(ValueError, match="control character"):
            await send_plainly(session, url, headers, (b"x",), WAY)
        assert seen == []


async def test_a_closed_session_sends_nothing() -> None:
    session = _session()
    await session.close()
    with pytest.raises(RuntimeError, match="closed"):
        await send_plainly(session, URL("http://127.0.0.1:1/"), CIMultiDict(), (b"",), WAY)
