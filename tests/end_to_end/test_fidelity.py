"""Everything that no rule edits passes byte for byte: heads and bodies, in both directions, seen on the socket."""

import asyncio

import orjson
import pytest
from support.client import ask_raw, post
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.chat import CHAT
from support.ids import make_uuid
from upstreams.raw import RawRequest
from upstreams.recording import completion
from yarl import URL

from trimtab.proxy.compaction.offload import INLINE_BYTES


@pytest.fixture
async def url(raw, start_proxy) -> str:
    return (await start_proxy(f"upstream.base_url={raw.url}")).url


def _request(first_line: bytes, *lines: bytes, body: bytes = b"") -> bytes:
    """A request after whose response the connection ends."""
    return b"\r\n".join((first_line, b"Host: localhost", *lines, b"Connection: close", b"", body))


def _parts(answer: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Status line, header lines and body, from the bytes of a response."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    return status, lines, body


@pytest.mark.parametrize("value", [b"M\xfcller", "Müller".encode(), b"\x80\xff\xc3", "\ue000".encode()])
async def test_bytes_beyond_ascii_cross_in_headers(value, raw, url):
    """They may be Latin-1, as Node sends them, UTF-8, or neither."""
    raw.answer = b"HTTP/1.1 200 Fine " + value + b"\r\nX-Title: " + value + b"\r\nContent-Length: 0\r\n\r\n"
    answer = await ask_raw(url, _request(b"GET /v1/x HTTP/1.1", b"X-Title: " + value))
    assert raw.requests[0].lines[1:] == [b"X-Title: " + value]
    status, lines, _ = _parts(answer)
    assert (status, lines[0]) == (b"HTTP/1.1 200 Fine " + value, b"X-Title: " + value)


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


@pytest.mark.parametrize(("method", "times"), [(b"POST", 1), (b"PATCH", 1), (b"GET", 2), (b"DELETE", 2)])
async def test_what_may_have_been_done_is_never_asked_for_again(method, times, raw, start_proxy):
    """A kept connection is closed instead of an answer. Only an idempotent request is sent once more."""
    dropped = []

    async def drop_second(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        if request.target == b"/v1/second":
            dropped.append(request)
            writer.close()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    raw.answer = drop_second
    proxy = await start_proxy(f"upstream.base_url={raw.url}", "defaults.context_window=8000")
    reader, writer = await asyncio.open_connection("127.0.0.1", URL(proxy.url).port)
    writer.write(method + b" /v1/first HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await asyncio.wait_for(reader.readuntil(b"{}"), 30)
    writer.write(method + b" /v1/second HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b" 502 " in await asyncio.wait_for(reader.readline(), 30)
    assert len(dropped) == times
    writer.close()
