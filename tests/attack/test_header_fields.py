"""How many header fields pass in each direction, and the errors above the limit."""

import asyncio

import orjson
import pytest
from support.client import ask_raw
from yarl import URL

from trimtab.proxy.http.headers import MAX_HEAD_BYTES, MAX_HEADER_FIELDS

GET = b"GET /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"


def _write_fields(number: int, value: bytes = b"y") -> bytes:
    return b"".join(b"X-%d: %b\r\n" % (each, value) for each in range(number))


@pytest.mark.parametrize("fields", [128, 256, MAX_HEADER_FIELDS - 10])
async def test_many_header_fields_cross_both_ways(fields, raw, start_proxy) -> None:
    """No header field is lost, as long as the head is within its limits."""
    raw.answer = b"HTTP/1.1 200 OK\r\n" + _write_fields(fields) + b"Content-Length: 2\r\n\r\n{}"
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    answer = await ask_raw(proxy.url, GET + _write_fields(fields) + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"\r\nX-") == fields
    assert raw.requests[-1].head.count(b"\r\nX-") == fields


@pytest.mark.parametrize(
    "fields",
    [
        _write_fields(MAX_HEADER_FIELDS + 1),
        _write_fields(20, b"y" * 4000),
        b"X: " + b"y" * (MAX_HEAD_BYTES + 1) + b"\r\n",
        b"X" * (MAX_HEAD_BYTES + 1) + b": y\r\n",
    ],
    ids=["many", "large together", "long", "long name"],
)
@pytest.mark.parametrize("path", [b"/v1/files", b"/v1/chat/completions"])
async def test_an_answer_with_more_of_them_is_502(fields, path, raw, start_proxy) -> None:
    """The error gives the reason. The next response is not affected."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    ok = raw.answer
    raw.answer = b"HTTP/1.1 200 OK\r\n" + fields + b"Content-Length: 2\r\n\r\n{}"
    post = b"POST %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}" % path
    answer = await ask_raw(proxy.url, post)
    assert answer.startswith(b"HTTP/1.1 502 ")
    error = orjson.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert (error["code"], "header fields" in error["message"]) == ("upstream_invalid", True)
    raw.answer = ok
    assert b" 200 " in await ask_raw(proxy.url, post)


@pytest.mark.parametrize(
    "request_bytes",
    [
        GET + _write_fields(MAX_HEADER_FIELDS + 1) + b"\r\n",
        GET + _write_fields(20, b"y" * 4000) + b"\r\n",
        GET + b"X: " + b"y" * (MAX_HEAD_BYTES + 1) + b"\r\n\r\n",
        GET.replace(b"files", b"f" * (MAX_HEAD_BYTES + 1)) + b"\r\n",
        GET + _write_fields(100_000, b"y" * 100) + b"\r\n",
        GET + b"X: " + b"y" * 5_000_000,
    ],
    ids=["many", "large together", "long", "long target", "megabytes", "endless"],
)
@pytest.mark.parametrize("piece_bytes", [10_000, 10_000_000])
@pytest.mark.parametrize("at_pages", [False, True])
async def test_a_request_with_more_of_them_is_431(request_bytes, piece_bytes, at_pages, raw, start_proxy) -> None:
    """The error reaches a client that is still sending. Nothing is sent to the upstream."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}", *(["metrics_listen=127.0.0.1:0"] if at_pages else []))
    address = URL(proxy.metrics_url if at_pages else proxy.url)
    reader, writer = await asyncio.open_connection(address.host, address.port)

    async def send() -> None:
        for start in range(0, len(request_bytes), piece_bytes):
            writer.write(request_bytes[start : start + piece_bytes])
            await writer.drain()

    sending = asyncio.ensure_future(send())
    answer = await asyncio.wait_for(reader.read(), 30)
    await asyncio.wait({sending}, timeout=30)
    sending.cancel()
    writer.close()
    assert answer.startswith(b"HTTP/1.0 431 ")
    error = orjson.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert (error["code"], error["type"]) == ("head_too_large", "trimtab_error")
    assert all(request.asks_for_windows for request in raw.requests)


async def test_what_is_no_request_is_refused_in_words(raw, start_proxy) -> None:
    """The error is trimtab's own, and quotes no part of the input."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    for sent in (
        b"\x16\x03\x01\x02\x00SECRET",
        b"SECRET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: SECRET\r\n\r\n",
    ):
        answer = await ask_raw(proxy.url, sent)
        assert orjson.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "unreadable_request"
        assert b"SECRET" not in answer
