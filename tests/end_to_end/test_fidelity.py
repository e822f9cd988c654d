"""Everything that no rule edits passes byte for byte: heads and bodies, in both directions, seen on the socket."""

from collections.abc import AsyncIterator

import orjson
import pytest
from support.client import ask_raw, post
from support.dialects.spoken.all_dialects import DIALECTS, find_dialect
from support.dialects.spoken.chat import CHAT
from support.ids import make_uuid
from upstreams.raw import OK, RawUpstream, run_raw_upstream
from upstreams.recording import completion

from trimtab.proxy.compaction.offload import INLINE_BYTES

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
COMPACTED = [dialect.path for dialect in DIALECTS]


@pytest.fixture
async def raw() -> AsyncIterator[RawUpstream]:
    async with run_raw_upstream() as upstream:
        yield upstream


@pytest.fixture
async def url(raw, start_proxy) -> str:
    return (await start_proxy(f"upstream.base_url={raw.url}")).url


def _request(first_line: bytes, *lines: bytes, body: bytes = b"") -> bytes:
    """A request after whose response the connection ends."""
    return b"\r\n".join((first_line, b"Host: localhost", *lines, b"Connection: close", b"", body))


def _write(path: str, *lines: bytes) -> tuple[bytes, bytes]:
    """A POST in the dialect of the path with these header lines, and its body."""
    body = orjson.dumps(find_dialect(path).write([{"role": "user", "content": "hi"}]))
    lines = tuple(line.replace(b"SIZE", b"%d" % len(body)) for line in lines)
    return _request(b"POST %b HTTP/1.1" % path.encode(), *lines, body=body), body


def _parts(answer: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Status line, header lines and body, from the bytes of a response."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    return status, lines, body


OWN_LINES = (b"Connection: close", b"Date:", b"x-trimtab-", b"Server-Timing:")


def _passed(lines: list[bytes]) -> list[bytes]:
    """The header lines without those that the proxy adds."""
    return [line for line in lines if not line.startswith(OWN_LINES)]


@pytest.mark.parametrize("path", [*COMPACTED, "/v1/other"])
async def test_request_headers_keep_order_case_and_duplicates(path, raw, url):
    """Content-Length keeps its position. On a compacted path, Accept-Encoding becomes identity in its position."""
    lines = [b"x-b: 1", b"X-A:  2", b"Content-Length: SIZE", b"x-b: 3", b"Authorization: Bearer k"]
    lines += [b"Cookie: a=b", b"accept-encoding: gzip, br", b"Cookie: c=d", b"X-Empty:", b"User-Agent: u", b"x-b: 1"]
    request, body = _write(path, *lines)
    await ask_raw(url, request)
    encoding = b"Accept-Encoding: identity" if path in COMPACTED else b"accept-encoding: gzip, br"
    length = b"Content-Length: %d" % len(body)
    expected = [b"x-b: 1", b"X-A: 2", length, *lines[3:6], encoding, b"Cookie: c=d", b"X-Empty: ", *lines[9:]]
    address = raw.url.removeprefix("http://").removesuffix("/v1").encode()
    assert raw.requests[0].lines == [b"Host: " + address, *expected]
    assert raw.requests[0].body == body


async def test_a_header_that_comes_again_in_another_case_is_kept(raw, url):
    """It gets the spelling of its first occurrence."""
    await ask_raw(url, _request(b"GET /v1/x HTTP/1.1", b"X-Twice: 1", b"x-other: 2", b"x-twice: 3"))
    assert raw.requests[0].lines[1:] == [b"X-Twice: 1", b"x-other: 2", b"X-Twice: 3"]


@pytest.mark.parametrize("path", [*COMPACTED, "/v1/other"])
async def test_answers_keep_order_case_and_duplicates_of_their_headers(path, raw, url):
    """Reason and length are kept too. Hop-by-hop headers are removed."""
    lines = [b"x-ratelimit-remaining: 1", b"Set-Cookie: a", b"content-length: 2", b"SET-COOKIE: b", b"X-A: 1"]
    lines += [b"openai-processing-ms: 5", b"Content-Type: a/b", b"set-cookie: a"]
    hop = [b"Keep-Alive: timeout=5", b"Connection: keep-alive, X-Hop", b"X-Hop: 1"]
    raw.answer = b"\r\n".join((b"HTTP/1.1 200 Quite Fine", *lines, *hop, b"", b"{}"))
    request, _ = _write(path, b"Content-Length: SIZE")
    answer = await ask_raw(url, request)
    status, received, body = _parts(answer)
    assert (status, _passed(received), body) == (b"HTTP/1.1 200 Quite Fine", lines, b"{}")


@pytest.mark.parametrize("value", [b"M\xfcller", "Müller".encode(), b"\x80\xff\xc3", "\ue000".encode()])
async def test_bytes_beyond_ascii_cross_in_headers(value, raw, url):
    """They may be Latin-1, as Node sends them, UTF-8, or neither."""
    raw.answer = b"HTTP/1.1 200 Fine " + value + b"\r\nX-Title: " + value + b"\r\nContent-Length: 0\r\n\r\n"
    answer = await ask_raw(url, _request(b"GET /v1/x HTTP/1.1", b"X-Title: " + value))
    assert raw.requests[0].lines[1:] == [b"X-Title: " + value]
    status, lines, _ = _parts(answer)
    assert (status, lines[0]) == (b"HTTP/1.1 200 Fine " + value, b"X-Title: " + value)


async def test_a_credential_beyond_ascii_is_served(raw, url):
    """It reaches the upstream unchanged, and the request is compacted as usual."""
    lines = [b"Authorization: Bearer \xfc\xff", b"Content-Length: 57"]
    answer = await ask_raw(url, _request(b"POST /v1/chat/completions HTTP/1.1", *lines, body=BODY))
    assert raw.requests[0].lines[1] == lines[0]
    assert b"x-trimtab-tokens: original=8, sent=8" in answer


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/a%2Fb%7e%C3%BC/;x=1/+?q=%2f&q=a+b;c",
        b"/v1/x?",
        b"/v1?",
        b"/v1/x?a=b?c=d/../e",
        b"/v1/a/../b/./c//d/",
        b"//v1//chat/completions",
        b"/?",
        b"/v1/@user:pw/http://x/",
        b"/v1/'()[]|{}^`\\\"<>",
        b"*",
    ],
)
async def test_targets_go_out_as_they_came(target, raw, url):
    """Nothing is decoded, normalised or removed."""
    answer = await ask_raw(url, _request(b"OPTIONS " + target + b" HTTP/1.1"))
    assert (answer[:15], raw.requests[0].target) == (b"HTTP/1.1 200 OK", target)


LENGTH, CHUNKED = b"Content-Length: ", b"Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    ("method", "path", "line", "body", "framing"),
    [
        (b"POST", b"/v1/files", CHUNKED, b"3\r\nabc\r\n0\r\n\r\n", CHUNKED),
        (b"POST", b"/v1/files", CHUNKED, b"0\r\n\r\n", CHUNKED),
        (b"POST", b"/v1/files", CHUNKED, b"3;x=y\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n", CHUNKED),
        (b"POST", b"/v1/chat/completions", CHUNKED, b"39\r\n" + BODY + b"\r\n0\r\n\r\n", LENGTH + b"57"),
        (b"POST", b"/v1/files", LENGTH + b"0", b"", LENGTH + b"0"),
        (b"POST", b"/v1/files", b"X: 1", b"", LENGTH + b"0"),
        (b"POST", b"/v1/chat/completions", LENGTH + b"0", b"", LENGTH + b"0"),
        (b"GET", b"/v1/files", LENGTH + b"3", b"abc", LENGTH + b"3"),
        (b"GET", b"/v1/files", LENGTH + b"0", b"", LENGTH + b"0"),
        (b"GET", b"/v1/files", b"X: 1", b"", None),
        (b"DELETE", b"/v1/files/1", LENGTH + b"2", b"{}", LENGTH + b"2"),
        (b"PUT", b"/v1/files/1", CHUNKED, b"1\r\na\r\n0\r\n\r\n", CHUNKED),
    ],
)
async def test_bodies_are_framed_as_they_came(method, path, line, body, framing, *, raw, url):
    """With a length if there was one or if the body was read whole, else in chunks. Trailers are dropped."""
    await ask_raw(url, _request(method + b" " + path + b" HTTP/1.1", line, body=body))
    received = raw.requests[0]
    framings = [item for item in received.lines if item.startswith((LENGTH, b"Transfer-Encoding"))]
    assert framings == ([framing] if framing else [])
    plain = {CHUNKED: {b"3": b"abc", b"1": b"a", b"0": b""}.get(body[:1], b"")}.get(line, body)
    assert received.body == (BODY if BODY in body else plain)
    assert b"X-Trailer" not in received.head


@pytest.mark.parametrize(
    ("method", "answer", "expected"),
    [
        (b"HEAD", b"200 OK\r\nContent-Length: 123\r\nX-A: 1\r\n\r\n", [b"Content-Length: 123", b"X-A: 1"]),
        (b"HEAD", b"200 OK\r\nX-A: 1\r\n\r\n", [b"X-A: 1"]),
        (b"HEAD", b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", []),
        (b"GET", b"204 No Content\r\nX-A: 1\r\n\r\n", [b"X-A: 1"]),
        (b"GET", b'304 Not Modified\r\nETag: "x"\r\n\r\n', [b'ETag: "x"']),
        (b"POST", b"204 No Content\r\n\r\n", []),
    ],
)
async def test_answers_without_a_body_have_none(method, answer, expected, raw, url):
    """The proxy adds no chunks and no length, and removes no length."""
    raw.answer = b"HTTP/1.1 " + answer
    status, lines, body = _parts(await ask_raw(url, _request(method + b" /v1/x HTTP/1.1")))
    assert (status, _passed(lines), body) == (b"HTTP/1.1 " + answer.split(b"\r\n")[0], expected, b"")


@pytest.mark.parametrize("interim", [b"100 Continue\r\n\r\n", b"103 Early Hints\r\nLink: <x>\r\n\r\n"])
async def test_interim_answers_of_the_upstream_stay_on_their_hop(interim, raw, url):
    """The client gets only the final response."""
    raw.answer = b"HTTP/1.1 " + interim + OK
    status, lines, body = _parts(await ask_raw(url, _request(b"POST /v1/x HTTP/1.1", b"Content-Length: 2", body=b"{}")))
    assert (status, _passed(lines), body) == (b"HTTP/1.1 200 OK", OK.split(b"\r\n")[1:3], b"{}")


async def test_a_client_of_http_1_0_is_not_told_to_go_on(raw, url):
    """HTTP/1.0 has no interim responses."""
    head = b"POST /v1/x HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    assert (await ask_raw(url, head + b"{}")).startswith(b"HTTP/1.0 200 OK")
    assert raw.requests[0].lines[1:] == [b"Content-Length: 2"]


async def test_requests_that_come_at_once_are_answered_in_order(raw, url):
    """Pipelining: several requests on one connection do not mix."""
    first = b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
    second = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 57\r\n\r\n" + BODY
    answers = await ask_raw(url, first + second + _request(b"GET /v1/end HTTP/1.1"))
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    assert [item.body for item in raw.requests] == [b"abc", BODY, b""]
    assert [item.target for item in raw.requests] == [b"/v1/files", b"/v1/chat/completions", b"/v1/end"]


async def test_a_body_in_a_coding_of_the_hop_is_refused(raw, url):
    """Forwarded without that header, it would be unreadable."""
    lines = b"Transfer-Encoding: gzip, chunked"
    answer = await ask_raw(url, _request(b"POST /v1/x HTTP/1.1", lines, body=b"2\r\n{}\r\n0\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert (b'"code":"bad_framing"' in answer, raw.requests) == (True, [])


@pytest.mark.parametrize("path", [b"/v1/x", b"/trimtab/health", b"/v1/chat/completions"])
@pytest.mark.parametrize("protocol", [b"h2c", b"tcp", b"TLS/1.0"])
async def test_behind_an_upgrade_that_is_not_followed_the_connection_ends(protocol, path, raw, url):
    """The response announces the end, so that a client repeats requests that it has already sent after the first."""
    first = b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: %b\r\n\r\n" % (path, protocol)
    answer = await ask_raw(url, first + _request(b"GET /v1/second HTTP/1.1"))

    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"\r\nconnection: close\r\n" in answer.lower()


NUMBER = (
    b'{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function","function":'
    b'{"name":"f","arguments":' + b"1" * 5000 + b'}}]},{"role":"tool","tool_call_id":"x","content":"ok"}'
)
NO_UTF8 = b'{"role":"user","content":"\xff"}'
UNREADABLE = [
    pytest.param(CHAT, NUMBER, id="a number"),
    *(pytest.param(one, NO_UTF8, id=f"{one}-no UTF-8") for one in DIALECTS),
]


@pytest.mark.parametrize(("dialect", "message"), UNREADABLE)
@pytest.mark.parametrize("words", [50, 1800])
async def test_a_message_that_defies_decoding_is_forwarded(
    dialect, message, words, *, client, upstream, start_proxy, log
):
    """Small or large, on the event loop or in a thread, the client's own bytes reach the upstream."""

    async def answer(_recorded, _request):
        return completion(dialect=dialect)

    upstream.answer = answer
    said = orjson.dumps({"role": "user", "content": " ".join(make_uuid().hex for _ in range(words))})
    body = b'{"model":"gpt-4o","%b":[%b,%b]}' % (dialect.transcript.encode(), said, message)
    assert (len(body) > INLINE_BYTES) == (words > 1000)
    proxy = await start_proxy()
    response, _ = await post(client, proxy.url + dialect.path, body)
    await proxy.services.lifecycle.idle.wait()

    assert (response.status, [item.body for item in upstream.requests]) == (200, [body])
    assert [line["outcome"] for line in log.lines if line["event"] == "request"] == ["undecodable"]
