"""Responses through aiohttp's server: no header is made up, and their framing is right."""

import re
from types import SimpleNamespace

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


async def test_a_body_is_framed_by_its_length_or_chunked():
    lines, body = await _ask(PlainResponse(headers={"X-A": "1", "Content-Length": "4"}), GET)
    assert lines == [b"HTTP/1.1 200 OK", b"X-A: 1", b"Content-Length: 4", b"Connection: close"]
    assert body == b"body"
    lines, body = await _ask(PlainResponse(headers={"Content-Type": "text/plain"}), GET)
    assert lines[1:] == [b"Content-Type: text/plain", b"Transfer-Encoding: chunked", b"Connection: close"]
    assert body == b"4\r\nbody\r\n0\r\n\r\n"


async def test_to_http_1_0_the_end_of_the_connection_is_the_end():
    lines, body = await _ask(PlainResponse(), b"GET / HTTP/1.0\r\n\r\n")
    assert lines[0] == b"HTTP/1.0 200 OK"
    assert not any(line.startswith(b"Transfer-Encoding") for line in lines)
    assert body == b"body"


KEPT = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "length", "told"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", {"Content-Length": "0"}, [[], [b"close"], []]),
        (KEPT, {"Content-Length": "0"}, [[b"keep-alive"], [b"close"], []]),
        (KEPT, {}, [[], []]),
    ],
)
async def test_a_connection_ends_only_when_the_client_wants_it(
    first: bytes, length: dict[str, str], told: list[list[bytes]]
) -> None:
    """Or if nothing else shows where an answer ends."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = PlainResponse(headers=length)
        await response.prepare(request)
        await response.write_eof()
        return response

    server = Server(answer, request_factory=OwnRequest.make, access_log=None)
    async with listen_at(server, "127.0.0.1:0") as (_, url):
        heads = (await ask_raw(url, first + GET)).split(b"\r\n\r\n")
    assert [re.findall(rb"Connection: (\S+)", head) for head in heads] == told


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


# A chunk of a stream is written at once.


def _stream_to(transport: object) -> PlainResponse:
    response = PlainResponse()
    protocol = SimpleNamespace(transport=transport)
    response._payload_writer = SimpleNamespace(
        _protocol=protocol, chunked=True, length=None, _headers_buf=None, buffer_size=0, output_size=0
    )
    return response


def test_nothing_is_written_to_a_client_that_has_left() -> None:
    lost, closing = list[bytes](), SimpleNamespace(is_closing=lambda: True)
    for transport in (None, closing):
        with pytest.raises(ConnectionResetError):
            _stream_to(transport).copier(None, lost.append)(b"x")
    assert lost == [b"x", b"x"]


@pytest.mark.parametrize(("waiting_bytes", "is_free"), [(0, True), (1, False)])
def test_a_chunk_says_whether_the_client_has_taken_all(waiting_bytes: int, *, is_free: bool) -> None:
    written = list[bytes]()
    transport = SimpleNamespace(
        is_closing=lambda: False, write=written.append, get_write_buffer_size=lambda: waiting_bytes
    )
    for write in (_stream_to(transport).copier(None, written.append), _stream_to(transport).write_at_once):
        assert write(b"x") is is_free
    assert written == [b"1\r\nx\r\n"] * 2


# The bytes of a head pass unchanged.

BYTES = st.binary(max_size=30).map(lambda value: bytes(byte for byte in value if byte >= 0x20 and byte != 0x7F))


@given(value=BYTES)
def test_a_value_is_written_byte_for_byte(value: bytes) -> None:
    keep_header_bytes()
    headers = CIMultiDict({"X-A": value.decode("utf-8", "surrogateescape")})
    assert http_writer._serialize_headers("HTTP/1.1 200 OK", headers) == b"HTTP/1.1 200 OK\r\nX-A: %b\r\n\r\n" % value
