"""No bytes after the last chunk of a request or response ever become part of the next one."""

import asyncio
import re

import orjson
import pytest
from support.client import CHAT, ask_raw, wait_until
from upstreams.raw import RawUpstream
from yarl import URL

from trimtab.proxy.server.connections import MAX_WAITING_REQUESTS, _Connection

PATHS = (b"/v1/files", b"/v1/chat/completions")
BODY = orjson.dumps(CHAT)
CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)
NEXT = b"GET /v1/next HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer second\r\nConnection: close\r\n\r\n"
TRAILERS = {
    "credential": b"0\r\nAuthorization: Bearer EVIL\r\n\r\n",
    "own key": b"0\r\nx-trimtab-key: EVIL\r\n\r\n",
    "several": b"0\r\nX-A: EVIL\r\nX-B: EVIL\r\nX-C: EVIL\r\n\r\n",
    "no value": b"0\r\nEVIL:\r\n\r\n",
    "blank value": b"0\r\nEVIL: \t\r\n\r\n",
    "name of the host": b"0\r\nHost: EVIL\r\n\r\n",
    "connection": b"0\r\nConnection: authorization\r\n\r\n",
    "kept alive": b"0\r\nConnection: keep-alive\r\nX-A: EVIL\r\n\r\n",
    "coding": b"0\r\nContent-Encoding: gzip\r\nX-A: EVIL\r\n\r\n",
    "length": b"0\r\nContent-Length: 40\r\n\r\n",
    "upgrade": b"0\r\nUpgrade: websocket\r\nX-A: EVIL\r\n\r\n",
    "behind an extension": b"0;ext=1\r\nX-A: EVIL\r\n\r\n",
    "behind many zeros": b"00000\r\nX-A: EVIL\r\n\r\n",
    "value of zero": b"0\r\nX-EVIL: 0\r\n\r\n",
}
UNREADABLE = {
    "folded": b"0\r\nX-A: b\r\n EVIL\r\n\r\n",
    "no colon": b"0\r\nEVIL\r\n\r\n",
    "too many": b"0\r\n" + b"X-A: EVIL\r\n" * 1001 + b"\r\n",
    "too long": b"0\r\nX-A: " + b"EVIL" * 20_000 + b"\r\n\r\n",
    "too long together": b"0\r\n" + (b"X-A: " + b"EVIL" * 100 + b"\r\n") * 300 + b"\r\n",
}


def _write_head(path: bytes, *lines: bytes) -> bytes:
    first = b"POST %b HTTP/1.1" % path
    return b"\r\n".join((first, b"Host: localhost", b"Transfer-Encoding: chunked", *lines, b"", b""))


async def _ask_in_turn(url: str, *pieces: bytes) -> bytes:
    """Send each piece after the response to the previous one has begun. Returns all bytes received."""
    address = URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    said = b""
    for number, piece in enumerate(pieces):
        writer.write(piece)
        while said.count(b"HTTP/1.1 ") <= number and not reader.at_eof():
            said += await asyncio.wait_for(reader.read(65536), 30)
    said += await asyncio.wait_for(reader.read(), 30)
    writer.close()
    await writer.wait_closed()
    return said


def _find_next(raw: RawUpstream) -> bytes | None:
    """The head of the second request, as the upstream received it."""
    return next((request.head for request in raw.requests if request.target == b"/v1/next"), None)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", TRAILERS)
@pytest.mark.parametrize("is_pipelined", [False, True])
async def test_no_trailer_is_part_of_the_next_request(name, path, raw, start_proxy, *, is_pipelined) -> None:
    """The next request may come after the response or at once. It is forwarded as if it were alone."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    first = _write_head(path) + CHUNK + TRAILERS[name]
    answer = await (ask_raw(proxy.url, first + NEXT) if is_pipelined else _ask_in_turn(proxy.url, first, NEXT))

    assert b"EVIL" not in b"".join(request.head for request in raw.requests)
    if answer.count(b"HTTP/1.1 200") == 2:
        lines = (_find_next(raw) or b"").lower().split(b"\r\n")
        names = [line.partition(b":")[0] for line in lines[1:]]
        assert names == [b"host", b"authorization"]
    else:
        assert _find_next(raw) is None


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 50])
async def test_however_it_is_cut_a_request_behind_trailers_goes_out_alone(size, raw, start_proxy) -> None:
    """The bytes come in pieces of any size, with one request before and two after."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    plain = b"GET /v1/first HTTP/1.1\r\nHost: localhost\r\n\r\n"
    chunked = _write_head(b"/v1/files") + b"2\r\n{}\r\n0\r\nX-A: EVIL\r\n\r\n"
    everything = plain + chunked + chunked + NEXT
    address = URL(proxy.url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    for start in range(0, len(everything), size):
        writer.write(everything[start : start + size])
        await asyncio.sleep(0)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    await writer.wait_closed()

    assert answer.count(b"HTTP/1.1 200") == 4
    assert [request.target for request in raw.requests] == [b"/v1/first", b"/v1/files", b"/v1/files", b"/v1/next"]
    assert b"EVIL" not in b"".join(request.head for request in raw.requests)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", UNREADABLE)
async def test_trailers_that_cannot_be_read_end_the_connection(name, path, raw, start_proxy) -> None:
    """The answer is 400 at once, with the head or after it, but a whole request keeps its own. Nothing more is read."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    for is_apart in (True, False):
        address = URL(proxy.url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(_write_head(path))
        if is_apart:
            await wait_until(lambda: not proxy.services.lifecycle.idle.is_set())
        writer.write(CHUNK + UNREADABLE[name] + NEXT)
        answer = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        (status,) = re.findall(rb"HTTP/1\.[01] (\d+)", answer)
        assert status in {b"400", b"431"} or (is_apart and name == "too long together" and status == b"200")
    assert _find_next(raw) is None


async def test_no_trailer_opens_the_door_for_a_request_without_a_key(raw, start_proxy) -> None:
    """The first request has a key, or is refused with an unread body. The second comes at once or later."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "client_keys=[door]", "upstream.api_key=sk-operator")
    shown = b"x-trimtab-key: door"
    keyless = NEXT.replace(b"Bearer second", b"Bearer none")
    for lines in ((shown,), ()):
        first = _write_head(b"/v1/files", *lines) + CHUNK + b"0\r\n" + shown + b"\r\n\r\n"
        for answer in (await ask_raw(proxy.url, first + keyless), await _ask_in_turn(proxy.url, first, keyless)):
            assert re.findall(rb"HTTP/1\.1 (\d+)", answer)[-1] == b"401"
    assert _find_next(raw) is None


async def test_no_trailer_shows_our_pages(raw, start_proxy) -> None:
    """Trailers are also dropped at `metrics_listen`, whose pages need a token."""
    settings = ("metrics_listen=127.0.0.1:0", "admin_token=door", f"upstream.base_url={raw.url}")
    proxy = await start_proxy(*settings)
    page = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    first = (
        _write_head(b"/metrics", b"Authorization: Bearer door") + b"2\r\n{}\r\n0\r\nAuthorization: Bearer door\r\n\r\n"
    )
    for answer in (await ask_raw(proxy.metrics_url, first + page), await _ask_in_turn(proxy.metrics_url, first, page)):
        assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"200", b"401"]


async def test_chunked_requests_share_a_connection(raw, start_proxy) -> None:
    """The connection stays open with and without trailers, because many clients send every request chunked."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    chunked = _write_head(b"/v1/files") + b"2\r\n{}\r\n"
    pieces = (chunked + b"0\r\n\r\n", chunked + b"0\r\nX-A: 1\r\n\r\n", chunked + b"000;x\r\n\r\n", NEXT)
    answer = await _ask_in_turn(proxy.url, *pieces)
    assert answer.count(b"HTTP/1.1 200") == 4


async def test_a_trailer_of_an_answer_is_in_no_other_answer(raw, start_proxy) -> None:
    """On a pooled connection to the upstream, the next client's response has only its own header fields."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    proxy = await start_proxy(f"upstream.base_url={raw.url}")
    for trailer in (b"Set-Cookie: EVIL", b"X-A: 1\r\nX-B: EVIL", b"Content-Encoding: gzip", b"EVIL:"):
        raw.answer = head + b"2\r\n{}\r\n0\r\n" + trailer + b"\r\n\r\n"
        first = await ask_raw(proxy.url, NEXT)
        raw.answer = head + b"2\r\n[]\r\n0\r\n\r\n"
        second = await ask_raw(proxy.url, NEXT)
        assert b"EVIL" not in first + second
        assert b"Content-Encoding" not in second
        assert second.endswith(b"2\r\n[]\r\n0\r\n\r\n")


@pytest.mark.parametrize("path", ["/trimtab/health", "/v1/embeddings", "/v1/chat/completions"])
async def test_an_answer_before_the_end_of_a_request_says_that_the_connection_ends(path, upstream, start_proxy) -> None:
    """Otherwise a front proxy would send another client's request on it. The rest of the first request is not read."""
    proxy = await start_proxy("client_keys=[one]")
    url = URL(proxy.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n"
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    assert b"connection: close" in answer.lower()
    writer.write(
        b"0\r\nContent-Length: 5\r\n\r\nGET /v1/next HTTP/1.1\r\nHost: localhost\r\nx-trimtab-key: one\r\n\r\n"
    )
    assert b"HTTP/1.1" not in await asyncio.wait_for(reader.read(), 30)
    writer.close()
    assert upstream.requests == []


async def test_requests_that_wait_on_one_connection_are_few(upstream, start_proxy, monkeypatch) -> None:
    """The number of waiting requests is bounded: a head of many fields takes a hundred times its size in memory."""
    waiting: list[int] = []
    takes_no_more = _Connection.takes_no_more

    def note(self: _Connection, added: int) -> bool:
        waiting.append(len(self._messages) + added)
        return takes_no_more(self, added)

    monkeypatch.setattr(_Connection, "takes_no_more", note)
    proxy = await start_proxy()
    head = b"GET /trimtab/health HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 900
    received = await ask_raw(proxy.url, (head + b"\r\n") * 39 + head + b"Connection: close\r\n\r\n")
    assert received.count(b"HTTP/1.1 200") == 40
    assert max(waiting) == MAX_WAITING_REQUESTS
