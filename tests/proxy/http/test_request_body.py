"""Bodies of chat requests, compressed or not, through a running proxy."""

import asyncio
import gzip
import random
import re
import sys
import zlib
from collections.abc import AsyncIterator
from unittest.mock import Mock

import orjson
import pytest
from aiohttp import web
from support.client import CHAT, ask_raw, post, wait_until
from upstreams.parsing import PLAIN, run_parsing_upstream
from upstreams.raw import OK, RawUpstream, run_raw_upstream
from upstreams.sockets import listen
from yarl import URL

from trimtab.proxy.http.errors import OverloadedError
from trimtab.proxy.http.request_body import Uploads

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}
LONG = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "look"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "a line of output\n" * 5000},
    ],
}


@pytest.mark.parametrize("coding", COMPRESS)
async def test_a_compressed_body_that_no_rule_touches_goes_out_as_it_came(coding, client, upstream, start_proxy, log):
    """Byte for byte, with its Content-Encoding. It was read, because its tokens are known."""
    proxy = await start_proxy()
    body = COMPRESS[coding](orjson.dumps(CHAT))
    headers = {"Content-Encoding": coding, "Content-MD5": "x"}
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body, **headers)
    assert response.status == 200
    sent = upstream.chats[0]
    assert (sent.body, sent.header("content-encoding"), sent.header("content-md5")) == (body, [coding], ["x"])
    assert sent.header("content-length") == [str(len(body))]
    assert (log.lines[-1]["outcome"], log.lines[-1]["original_tokens"]) == ("unchanged", 8)


async def test_a_compressed_body_is_compacted(client, upstream, start_proxy, log):
    """A changed body is sent uncompressed, without the headers that describe only the client's bytes."""
    proxy = await start_proxy()
    headers = {"Content-Encoding": "gzip", "Content-MD5": "x", "Content-Digest": "y"}
    response, _ = await post(client, proxy.url + "/v1/chat/completions", gzip.compress(orjson.dumps(LONG)), **headers)
    assert response.headers["x-trimtab-decisions"].startswith("truncate")
    sent = upstream.chats[0]
    names = {name.lower() for name, _ in sent.headers}
    assert names.isdisjoint({"content-encoding", "content-md5", "content-digest"})
    assert sent.header("content-length") == [str(len(sent.body))]
    assert sent.json["messages"][:2] == LONG["messages"][:2]
    assert len(sent.body) < 30_000
    assert log.lines[-1]["outcome"] == "compacted"


async def test_a_compressed_body_takes_the_memory_of_what_comes_out_of_it(client, upstream, start_proxy):
    """Until its request is answered. A few kilobytes may become megabytes."""
    proxy, left, plainly = await start_proxy("limits.max_held_bytes=1000000"), [], upstream.answer
    services = proxy.services
    bounds = services.uploads, services.memory
    before = [bound.left_bytes for bound in bounds]

    async def answer(recorded, request):
        left.extend(bound.left_bytes for bound in bounds)
        return await plainly(recorded, request)

    upstream.answer = answer
    body = orjson.dumps(LONG)
    sent = gzip.compress(body)
    await post(client, proxy.url + "/v1/chat/completions", sent, **{"Content-Encoding": "gzip"})
    await services.lifecycle.idle.wait()
    assert before[0] - left[0] == len(sent) + len(body)
    assert before[1] - left[1] > len(sent) + len(body)
    assert [bound.left_bytes for bound in bounds] == before


@pytest.mark.parametrize(
    ("body", "coding", "outcome"),
    [
        (gzip.compress(orjson.dumps(CHAT))[:-3], "gzip", "undecodable"),
        (b"\x1f\x8bnothing of the kind", "gzip", "undecodable"),
        (orjson.dumps(CHAT), "br", "undecodable"),
        (gzip.compress(b"no JSON"), "gzip", "undecodable"),
        (gzip.compress(orjson.dumps(CHAT | {"x": "a" * 70_000})), "gzip", "too_large"),
        (gzip.compress(orjson.dumps(CHAT | {"x": "a" * 70_000}), compresslevel=0), "gzip", "too_large"),
    ],
    ids=["cut", "garbage", "unknown", "no JSON", "large", "large already"],
)
async def test_what_cannot_be_read_is_passed_on(body, coding, outcome, *, client, upstream, start_proxy, log):
    """A damaged, unknown or too large body passes unchanged, and is counted by its kind."""
    proxy = await start_proxy("limits.max_body_bytes=65536")
    headers = {"Content-Encoding": coding}
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body, **headers)
    assert response.status == 200
    sent = upstream.requests[0]
    assert (sent.body, sent.header("content-encoding")) == (body, [coding])
    await wait_until(lambda: log.lines)  # a request is told a little after its answer
    assert log.lines[-1]["outcome"] == outcome


# Smuggling: whatever a client writes, the upstream sees the requests that the proxy saw.

HIDDEN = b"GET /v1/evil HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /v1/last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CHUNKED = b"5\r\nabcde\r\n0\r\n\r\n"


def write_request(*lines: bytes, body: bytes = b"abcde", start: bytes = b"POST /v1/x HTTP/1.1") -> bytes:
    return b"\r\n".join((start, b"Host: localhost", *lines)) + b"\r\n\r\n" + body


LENGTHS = [
    b"Content-Length: 5, 5", b"Content-Length: +5", b"Content-Length: -5", b"Content-Length: 0_5",
    b"Content-Length: 0x5", "Content-Length: \u0665".encode(), b"Content-Length: 5 0", b"Content-Length:",
    b"Content-Length: 9223372036854775808", b"Content-Length: 18446744073709551616", b"Content-Length : 5",
    b"Content-Length: 5\r\nContent-Length: 0", b"Content-Length: 5\r\nContent-Length: 5",
    b"Transfer-Encoding: identity\r\nContent-Length: 5", b"Transfer-Encoding: xchunked\r\nContent-Length: 5",
    b"Transfer-Encoding: identity",
]  # fmt: skip
CODINGS = [
    b"Transfer-Encoding : chunked", b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: \x0bchunked", b'Transfer-Encoding: "chunked"', b"Transfer-Encoding: chunked;a=b",
    b"Transfer-Encoding:\r\n chunked",
]  # fmt: skip
FIELDS = [
    b"X-A: 1\r\n X-B: 2", b"X-A: 1\nX-B: 2", b"X-A: 1\rX-B: 2", b"X-A: 1\x00", b"X-A: \x01", b"X\x00A: 1", b"X A: 1",
    b"X(A): 1", b"X\xe9A: 1", b": 1", b"X-A", b"Host: evil",
]  # fmt: skip
CHUNKS = [
    b"5;a\nabcde\r\n0\r\n\r\n", b"5\nabcde\n0\n\n", b"5\r\nabcdeXX0\r\n\r\n", b"-5\r\nabcde\r\n0\r\n\r\n",
    b"0x5\r\nabcde\r\n0\r\n\r\n", b" 5\r\nabcde\r\n0\r\n\r\n", b"1" + b"0" * 18 + b"\r\nabcde\r\n0\r\n\r\n",
    b"5\r\nabcde\r\n0\r\nContent-Length: 40\r\n\r\n",
]  # fmt: skip
STARTS = [
    b"GET /v1/x HTTP/1.1\r\n X: y", b"GET /v1/x y HTTP/1.1", b"GET /v1/x\ty HTTP/1.1", b"GET /v1/x\x00y HTTP/1.1",
    b"GET /v1/\xc4\x8d\xc4\x8aX:y HTTP/1.1", b"GE(T /v1/x HTTP/1.1", b"GET /v1/x HTTP/1.2",
]  # fmt: skip
REFUSED = [
    *(write_request(line) for line in LENGTHS),
    *(write_request(line, body=CHUNKED) for line in CODINGS),
    *(write_request(line, body=b"") for line in FIELDS),
    *(write_request(b"Transfer-Encoding: chunked", body=chunks) for chunks in CHUNKS),
    *(write_request(b"X-A: 1", body=b"", start=start) for start in STARTS),
    write_request(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + HIDDEN),
    write_request(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=b"0\r\n\r\n" + HIDDEN),
    write_request(b"Content-Length: 5", b"Transfer-Encoding:", body=b"abcde" + HIDDEN),
    write_request(b"Transfer-Encoding: chunked", body=CHUNKED, start=b"POST /v1/x HTTP/1.0"),
    write_request(b"X-A: 1", body=b"").replace(b"\r\n", b"\n"),
    b"GET /v1/x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


PASSED = [
    (write_request(b"Content-Length: 5"), b"abcde"),
    (write_request(b"Content-Length: %d" % len(HIDDEN), body=HIDDEN), HIDDEN),
    (write_request(b"Transfer-Encoding: chunked", body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)), HIDDEN),
    (write_request(b"Content-Length: 005"), b"abcde"),
    (write_request(b"Content-Length:  5 \t"), b"abcde"),
    (write_request(b"TrAnSfEr-EnCoDiNg: ChUnKeD", body=CHUNKED), b"abcde"),
    (write_request(b"Content-Length: 5", b"Transfer_Encoding: chunked"), b"abcde"),
    (write_request(b"Content-Length: 5", b"content_length: 0"), b"abcde"),
    (write_request(b"Transfer-Encoding: chunked", body=b"5;a=b\r\nabcde\r\n0\r\n\r\n"), b"abcde"),
    (write_request(b"Transfer-Encoding: chunked", body=b"5\r\nabcde\r\n0\r\nX-T: 1\r\n\r\n"), b"abcde"),
    (write_request(b"Connection: content-length, host", b"Content-Length: 5"), b"abcde"),
    (write_request(b"Connection: transfer-encoding", b"Transfer-Encoding: chunked", body=CHUNKED), b"abcde"),
    (write_request(b"Expect: 200-ok", b"Content-Length: 5"), b"abcde"),
    (write_request(body=b""), b""),
]


FORBIDDEN = {b"transfer_encoding", b"content_length", b"upgrade", b"te", b"expect", b"proxy-connection"}


async def test_what_could_be_read_in_two_ways_is_refused(start_proxy):
    """With 400, at once. The upstream gets nothing, and the connection ends, so what follows is not read."""
    async with run_parsing_upstream() as upstream:
        proxy = await start_proxy(f"upstream.base_url={upstream.url}", "defaults.context_window=8000")
        for head in REFUSED:
            answer = await ask_raw(proxy.url, head + LAST)
            assert (head, re.findall(rb"^HTTP/\S+ (\d+)", answer, re.MULTILINE)) == (head, [b"400"])
    assert upstream.connections == []


async def test_what_passes_is_framed_anew(start_proxy):
    """One request stays one, whatever its body contains. All headers about its framing are the proxy's own."""
    for request, body in PASSED:
        async with run_parsing_upstream() as upstream:
            proxy = await start_proxy(f"upstream.base_url={upstream.url}", "defaults.context_window=8000")
            answer = await ask_raw(proxy.url, request + LAST)
        assert answer.count(b"HTTP/1.1 200 ") == 2
        assert upstream.requests == [("POST", "/v1/x", body), ("GET", "/v1/last", b"")]
        names = [name for name, _ in upstream.headers]
        assert FORBIDDEN.isdisjoint(names)
        assert names.count(b"content-length") + names.count(b"transfer-encoding") == 1
        assert names.count(b"host") == 2


@pytest.mark.parametrize("frame", [b"Content-Length: 20", b"Transfer-Encoding: chunked"])
async def test_a_body_that_breaks_off_is_never_completed(frame, client, start_proxy, log):
    """Half a body never becomes a complete request for the upstream."""
    async with run_parsing_upstream() as upstream:
        proxy = await start_proxy(f"upstream.base_url={upstream.url}", "defaults.context_window=8000")
        url = URL(proxy.url)
        for path in (b"/v1/x", b"/v1/chat/completions"):
            _, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(write_request(frame, body=b"5\r\nabcde\r\n", start=b"POST %b HTTP/1.1" % path))
            writer.close()
            await writer.wait_closed()
        async with asyncio.timeout(30):
            while len(log.lines) < 2:
                async with client.get(proxy.url + "/trimtab/health") as response:
                    assert response.status == 200
        async with client.get(proxy.url + "/v1/last") as response:
            assert response.status == 200
    assert [line["outcome"] for line in log.lines if line["event"] == "request"] == ["aborted", "aborted", "passed"]
    assert [target for _, target, _ in upstream.requests] == ["/v1/last"]


async def test_at_random_the_upstream_sees_as_many_requests_as_the_log(start_proxy, log):
    """Hostile header lines in any number and order. A request that is not in the log was smuggled."""
    lines = [
        b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: %d" % len(CHUNKED), b"Content-Length : 5",
        b"Content_Length: 5", b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity",
        b"transfer_encoding: chunked",
        b"Transfer-Encoding:", b"Transfer-Encoding:\tchunked", b"Connection: content-length", b"Connection: keep-alive",
        b"Connection: transfer-encoding", b"TE: chunked", b"Expect: x", b"X-A: \xe9", b"Trailer: Content-Length",
        b"X-A: a\tb", b"Content-Encoding: gzip", b"Host:", b"X-B:",
    ]  # fmt: skip
    bodies = [b"", b"abcde", CHUNKED, b"0\r\n\r\n", HIDDEN, CHUNKED + HIDDEN, b"abcde" + HIDDEN]
    choose = random.Random(7)  # noqa: S311 - the same at every run
    async with run_parsing_upstream() as upstream:
        proxy = await start_proxy(f"upstream.base_url={upstream.url}", "defaults.context_window=8000")
        for _ in range(100):
            chosen = choose.sample(lines, choose.randint(1, 4))
            start = b"%b /v1/x HTTP/1.%d" % (choose.choice([b"POST", b"GET"]), choose.choice([1, 1, 1, 0]))
            await ask_raw(proxy.url, write_request(*chosen, body=choose.choice(bodies), start=start) + LAST)
    seen = [line for line in log.lines if line["event"] == "request"]
    passed = [line for line in seen if line["outcome"] == "passed"]
    assert len(upstream.requests) == len(passed)
    assert len(passed) > 15
    assert len(seen) > len(passed)


BAD_HEADS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Bad: a\x01\x7fb\r\n\r\nok",
    b"HTTP/1.1 200 O\x01K\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Fold: a\r\n X-Bad: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-C: \xc4\x8d\xc4\x8aX-Bad: 1\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Bad: 1\r\n\r\n",
]


BAD_ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: 1\rX-Bad: 1\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Bad: 1\x00\r\n\r\nok",
    PLAIN.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"),
    PLAIN.replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\n\r\n"),
    PLAIN.replace(b"2\r\n\r\n", b"-2\r\n\r\n"),
    b"\x00\x01\r\n\r\n",
    b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
    PLAIN.replace(b"200 OK", b"099 Odd"),
]


@pytest.mark.parametrize("path", ["/v1/x", "/v1/chat/completions"])
async def test_an_answer_is_not_lost_by_an_odd_head(path, client, start_proxy):
    """Headers that cannot be sent are left out, and nothing else becomes a header."""
    async with run_parsing_upstream() as upstream:
        proxy = await start_proxy(f"upstream.base_url={upstream.url}", "defaults.context_window=8000")
        for upstream.answer in BAD_HEADS:
            async with client.post(proxy.url + path, data=b"{}") as response:
                assert (response.status, await response.read()) == (200, b"ok")
                assert "X-Bad" not in response.headers


@pytest.mark.parametrize("path", ["/v1/x", "/v1/chat/completions"])
async def test_an_answer_that_is_none_is_502(path, client, start_proxy):
    """With the proxy's own message. The client's connection can be used again."""
    async with run_parsing_upstream() as upstream:
        proxy = await start_proxy(f"upstream.base_url={upstream.url}", "defaults.context_window=8000")
        for bad in BAD_ANSWERS:
            upstream.answer = bad
            async with client.post(proxy.url + path, data=b"{}") as response:
                assert (response.status, orjson.loads(await response.read())["error"]["type"]) == (502, "trimtab_error")
            upstream.answer = PLAIN
            async with client.post(proxy.url + path, data=b"{}") as response:
                assert response.status == 200


TARGETS = [
    b"http://EVIL/v1/x", b"http://EVIL", b"https://user:word@EVIL/v1/x", b"//EVIL/v1/x", b"///EVIL/v1/x", b"/\\EVIL/x",
    b"\\\\EVIL\\x", b"/@EVIL/x", b"/v1/../..//EVIL/x", b"/v1/..;/x", b"/v1/%2e%2e/%2e%2e/x", b"/v1//EVIL/x",
    b"/v1/http://EVIL/x", b"/v1?url=http://EVIL", b"/v1/%0d%0aHost:%20EVIL", b"*", b"http:///v1/x", b"http://[::1/v1",
    b"http://EVIL:99999/x", b"ws://EVIL/v1/realtime", b"file:///etc/passwd", b"/v1/x#@EVIL", b"http:EVIL", b"@EVIL/x",
    b"http://127.0.0.1@EVIL/v1/x", b"http://EVIL\\@127.0.0.1/x", b"/v1/chat/completions@EVIL", b"EVIL", b"?x=http://EVIL",
]  # fmt: skip
POINTERS = [
    b"Host: EVIL", b"X-Forwarded-Host: EVIL", b"X-Forwarded-For: 1.2.3.4", b"Forwarded: host=EVIL", b"X-Host: EVIL",
    b"X-Original-URL: http://EVIL/", b"X-Rewrite-URL: //EVIL", b"X-Trimtab-Upstream: http://EVIL", b"X-Real-Host: EVIL",
    b"Proxy: http://EVIL", b"Origin: http://EVIL", b"X-HTTP-Host-Override: EVIL", b"Alt-Used: EVIL",
]  # fmt: skip


@pytest.mark.parametrize("method", [b"GET", b"POST", b"CONNECT", b"OPTIONS"])
async def test_no_target_and_no_header_chooses_the_host(method, start_proxy):
    """Everything goes to the configured upstream, under its own name, or nowhere."""
    async with run_parsing_upstream() as evil, run_parsing_upstream() as upstream:
        authority = f"127.0.0.1:{URL(evil.url).port}".encode()
        anyone = ('allowed_hosts=["*"]', 'allowed_origins=["*"]')
        proxy = await start_proxy(f"upstream.base_url={upstream.url}", "defaults.context_window=8000", *anyone)
        answers = []
        for target in (*TARGETS, authority):
            start = b"%b %b HTTP/1.1" % (method, target.replace(b"EVIL", authority))
            request = write_request(b"Content-Length: 2", b"Connection: close", body=b"{}", start=start)
            answers.append(await ask_raw(proxy.url, request))
        for pointer in POINTERS:
            line = pointer.replace(b"EVIL", authority)
            host = b"" if line.startswith(b"Host") else b"Host: localhost\r\n"
            head = b"%b /v1/x HTTP/1.1\r\n%b%b\r\nConnection: close\r\n\r\n" % (method, host, line)
            answers.append(await ask_raw(proxy.url, head))
    assert evil.connections == []
    assert all(answer.startswith(b"HTTP/1.") for answer in answers)
    own = f"127.0.0.1:{URL(upstream.url).port}".encode()
    assert {value for name, value in upstream.headers if name == b"host"} <= {own}
    assert (len(upstream.requests) == 0) is (method == b"CONNECT")


# Bodies that come slowly, stop, or are too many: refused, and the proxy stays free for others.


PATHS = [b"/v1/chat/completions", b"/v1/files"]


@pytest.fixture
async def raw() -> AsyncIterator[RawUpstream]:
    async with run_raw_upstream() as upstream:
        yield upstream


def _head(path: bytes, length: int) -> bytes:
    return b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % length


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_stops_sending_is_refused(path, raw, start_proxy, log):
    """408 and the end of the connection, whether the body is read whole or streams through."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "limits.client_silence_seconds=0.1")
    answer = await ask_raw(proxy.url, _head(path, 100) + b'{"model":')
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"Connection: close" in answer
    assert b'"code":"request_timeout"' in answer
    await asyncio.wait_for(proxy.services.lifecycle.idle.wait(), 30)
    assert (log.lines[-1]["status"], log.lines[-1]["error"]) == (408, "request_timeout")


async def test_a_client_that_drips_is_refused(raw, start_proxy):
    """Each byte comes soon enough, but the average rate is too low."""
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "limits.client_silence_seconds=0.3")
    url = URL(proxy.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(_head(PATHS[0], 100_000))
    reading = asyncio.ensure_future(reader.readline())
    async with asyncio.timeout(30):
        while not reading.done():
            writer.write(b" ")
            await asyncio.wait([reading], timeout=0.05)
    assert (await reading).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_an_upstream_that_takes_its_time_is_not_the_clients_fault(start_proxy):
    """The client's upload stops when the sockets are full. Such a client does not count as silent."""
    release = asyncio.Event()
    size_bytes = 50_000_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()  # what has come stays in the socket
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(size_bytes)
        writer.write(OK)

    async with listen(serve) as address:
        base_url = f"http://{address}/v1"
        proxy = await start_proxy(f"upstream.base_url={base_url}", "limits.client_silence_seconds=2")
        url = URL(proxy.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(_head(b"/v1/files", size_bytes) + bytes(size_bytes))
        reading = asyncio.ensure_future(reader.readline())
        assert await asyncio.wait([reading], timeout=3) == (set(), {reading})
        assert writer.transport.get_write_buffer_size() > size_bytes // 2
        release.set()
        assert await asyncio.wait_for(reading, 30) == b"HTTP/1.1 200 OK\r\n"
        writer.close()


@pytest.mark.parametrize("most_bytes", [1024, 1024 * 1024])
async def test_bodies_that_are_held_are_bounded_together(most_bytes, upstream, start_proxy, client):
    """A body that does not fit is refused with 503. When the others are done, it is accepted.

    A short one comes with its head, a long one in pieces.
    """
    proxy = await start_proxy(f"limits.max_held_bytes={most_bytes}")
    arrived, release = asyncio.Event(), asyncio.Event()

    async def hold(_recorded, _request):
        arrived.set()
        await release.wait()
        return web.Response()

    upstream.answer = hold
    url = proxy.url + "/v1/chat/completions"
    body = CHAT | {"x": "a" * (most_bytes // 2)}
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(post(client, url, body))
        await asyncio.wait_for(arrived.wait(), 30)
        refused, answer = await post(client, url, body)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert b"limits.max_held_bytes" in answer
        release.set()
    assert first.result()[0].status == 200
    assert (await post(client, url, body))[0].status == 200
    await asyncio.wait_for(proxy.services.lifecycle.idle.wait(), 30)
    assert proxy.services.uploads.left_bytes == most_bytes


def test_a_new_bound_counts_what_is_held_already() -> None:
    uploads, request = Uploads(100, 1.0), Mock(web.BaseRequest)
    uploads.hold(request, 60)
    uploads.rebound(70)
    with pytest.raises(OverloadedError):
        uploads.hold(request, 11)
    uploads.hold(request, 10)
    uploads.release(request)
    assert uploads.left_bytes == 70


async def test_another_protocol_is_not_passed_on(client, start_proxy):
    """No upstream is made to switch protocols, because the proxy could not read what follows."""
    async with run_parsing_upstream() as upstream:
        proxy = await start_proxy(f"upstream.base_url={upstream.url}", "defaults.context_window=8000")
        headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__"}
        async with client.post(proxy.url + "/v1/x", data=b"abcde", headers=headers) as response:
            assert response.status == 200
    assert upstream.requests == [("POST", "/v1/x", b"abcde")]
    assert {b"upgrade", b"http2-settings", b"connection"}.isdisjoint(name for name, _ in upstream.headers)
