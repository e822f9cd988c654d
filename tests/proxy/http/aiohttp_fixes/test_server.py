"""Responses through aiohttp's server: no header is made up, and their framing is right."""

import pytest
from aiohttp import http_writer, web
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from support.client import ask_raw

from trimtab.proxy.http.aiohttp_fixes.server import OwnRequest, PlainResponse, keep_header_bytes
from trimtab.proxy.server.app import listen_at
from trimtab.proxy.server.connections import Server


async def _ask(response: PlainResponse, asked: bytes, body: bytes = b"body") -> tuple[list[bytes], bytes]:
    """The lines of a response's head without `Date`, and its body."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        await response.prepare(request)
        await response.write_eof(body)
        return response

    server = Server(answer, request_factory=OwnRequest.make, access_log=None)
    async with listen_at(server, "127.0.0.1:0") as (_, url):
        head, _, rest = (await ask_raw(url, asked)).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert sum(line.startswith(b"Date: ") for line in lines) == 1
    return [line for line in lines if not line.startswith(b"Date: ")], rest


GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def test_a_body_of_known_length_is_framed_by_it():
    lines, body = await _ask(PlainResponse(headers={"X-A": "1", "Content-Length": "4"}), GET)
    assert lines == [b"HTTP/1.1 200 OK", b"X-A: 1", b"Content-Length: 4", b"Connection: close"]
    assert body == b"body"


async def test_a_body_of_unknown_length_is_chunked():
    lines, body = await _ask(PlainResponse(headers={"Content-Type": "text/plain"}), GET)
    expected = [b"HTTP/1.1 200 OK", b"Content-Type: text/plain", b"Transfer-Encoding: chunked", b"Connection: close"]
    assert lines == expected
    assert body == b"4\r\nbody\r\n0\r\n\r\n"


async def test_to_http_1_0_the_end_of_the_connection_is_the_end():
    """HTTP/1.0 has no chunks."""
    lines, body = await _ask(PlainResponse(), b"GET / HTTP/1.0\r\n\r\n")
    assert lines[0] == b"HTTP/1.0 200 OK"
    assert not any(line.startswith(b"Transfer-Encoding") for line in lines)
    assert body == b"body"


@pytest.mark.parametrize(("method", "status"), [(b"HEAD", 200), (b"GET", 204), (b"GET", 304)])
async def test_an_answer_without_a_body_has_none(method: bytes, status: int):
    """The length of a GET's body may be announced; nothing is chunked."""
    lines, body = await _ask(PlainResponse(status=status), GET.replace(b"GET", method), b"")
    assert body == b""
    assert not any(line.startswith(b"Transfer-Encoding") for line in lines)


async def test_a_head_that_is_held_goes_out_with_the_body():
    response = PlainResponse(headers={"Content-Length": "4"})
    response.hold_head()
    _, body = await _ask(response, GET)
    assert body == b"body"


async def test_a_date_that_the_upstream_sent_is_kept():
    date = "Thu, 01 Jan 1970 00:00:00 GMT"
    response = PlainResponse(headers={"Date": date, "Server": "theirs", "Content-Length": "4"})
    lines, _ = await _ask(response, GET)
    assert b"Server: theirs" in lines
    assert response.headers["Date"] == date


# The bytes of a head pass unchanged.

BYTES = st.binary(max_size=30).map(lambda value: bytes(byte for byte in value if byte >= 0x20 and byte != 0x7F))


@given(value=BYTES)
def test_a_value_is_written_byte_for_byte(value: bytes) -> None:
    """UTF-8, Latin-1 or neither."""
    keep_header_bytes()
    headers = CIMultiDict({"X-A": value.decode("utf-8", "surrogateescape")})
    assert http_writer._serialize_headers("HTTP/1.1 200 OK", headers) == b"HTTP/1.1 200 OK\r\nX-A: %b\r\n\r\n" % value
