"""Responses are passed to the client at once and unchanged, and one that breaks off never looks complete."""

import asyncio
import gzip
import sys
import time
import zlib
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import aiohttp
import brotli
import pytest
from aiohttp import HttpVersion11, web
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from support.client import CHAT, SMALL, ask_raw, post
from support.dialects.spoken.all_dialects import DIALECTS
from support.model_learning import Clock
from support.sessions import make_session
from upstreams.recording import break_off, completion, event, stream, write_note

from trimtab.proxy.exchange.early_answer import COMMENT, Patience
from trimtab.proxy.http.aiohttp_fixes.server import PlainResponse, reset_transport
from trimtab.proxy.http.content_coding import STEP_BYTES, Reader
from trimtab.proxy.http.relay import MIN_SECONDS, Pace, Reply, _Decoding, answer_headers


async def _read_stream_times(client, url: str) -> dict[str, float]:
    """Sums and counts of the histograms for streams."""
    text = (await (await client.get(url + "/metrics")).read()).decode()
    names = ("trimtab_time_to_first_token_seconds", "trimtab_output_tokens_per_second")
    families = [family for family in text_string_to_metric_families(text) if family.name in names]
    assert len(families) == 2
    samples = [sample for family in families for sample in family.samples if "_bucket" not in sample.name]
    return {sample.name: sample.value for sample in samples}


ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
REASONING = b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"%b"}}]}\n\n' % (b"hm " * 20)


@pytest.mark.parametrize("first", [event("text " * 10), REASONING], ids=["text", "reasoning"])
async def test_the_first_token_is_the_first_text(first, client, upstream, start_proxy, monkeypatch):
    """Reasoning counts as text; comments and a role do not. The rate is that of the text after the first.

    Each chunk reaches the client before the upstream writes the next one.
    """
    clock = Clock()
    for module in ("relay", "aiohttp_fixes.server"):
        monkeypatch.setattr(f"trimtab.proxy.http.{module}.time", SimpleNamespace(monotonic=clock))
    started = time.monotonic()
    chunks = [(b": ping\n\n" + ROLE, 0), (b": ping\n\n", 1000), (first, 5000), (event("t" * 400), 5010)]
    chunks += [(b": ping\n\n", 9000)]
    turn, turns = asyncio.Event(), iter(chunks)

    async def answer(_recorded, request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk, seconds in turns:
            turn.clear()
            clock.seconds = started + seconds
            await response.write(chunk)
            await turn.wait()
        await response.write_eof()
        return response

    upstream.answer = answer
    proxy = await start_proxy()
    async with client.post(proxy.url + "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
        async for _ in response.content.iter_any():
            turn.set()
    times = await _read_stream_times(client, proxy.url)
    assert times["trimtab_time_to_first_token_seconds_sum"] == pytest.approx(5000, abs=60)
    assert times["trimtab_output_tokens_per_second_count"] == 1
    assert 1 < times["trimtab_output_tokens_per_second_sum"] <= 40


@pytest.mark.parametrize("started", [False, True])
async def test_client_that_leaves_cancels_the_upstreams_work(started, client, upstream, start_proxy, log):
    """Before the first byte as well as in the middle of a stream. The outcome says that it left."""

    async def endless(_recorded, request):
        if started:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(event("one"))
        await asyncio.Event().wait()

    upstream.answer = endless
    proxy = await start_proxy()
    asking = asyncio.ensure_future(post(client, proxy.url + "/v1/chat/completions", CHAT | {"stream": True}))
    await asyncio.wait_for(upstream.arrived.wait(), 30)
    asking.cancel()
    await asyncio.wait_for(upstream.cancelled.wait(), 30)
    await asyncio.wait_for(proxy.services.lifecycle.idle.wait(), 30)
    assert log.lines[-1]["outcome"] == "aborted"


@pytest.mark.parametrize("mode", ["off", "enforce"])
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_an_error_in_the_form_of_an_event_passes_as_it_is(mode, *, is_chunked, client, upstream, start_proxy):
    """Its type is event stream, but its status shows that it is an error: no byte is added."""
    told = b'data: {"error":{"message":"slow down"}}\n\n'

    async def refuse(_recorded, request):
        response = web.StreamResponse(status=429, headers={"Content-Type": "text/event-stream"})
        if not is_chunked:
            response.content_length = len(told)
        await response.prepare(request)
        await response.write(told)
        await response.write_eof()
        return response

    upstream.answer = refuse
    proxy = await start_proxy(f"mode={mode}")
    response, answer = await post(client, proxy.url + "/v1/chat/completions", CHAT | {"stream": True})
    assert (response.status, answer) == (429, told)


@pytest.mark.parametrize("method", ["feed", "count_completion"])
async def test_a_fault_in_reading_along_costs_no_byte(method, client, upstream, start_proxy, log, monkeypatch):
    """The response passes whole, the fault is counted, and the connection can be used again."""

    async def answer(_, request):
        return await stream(request, "a", "b", "c")

    def fail(*_: object) -> None:
        raise KeyError

    upstream.answer = answer
    proxy = await start_proxy()
    _, direct = await post(client, upstream.url + "/chat/completions", CHAT | {"stream": True})
    monkeypatch.setattr("trimtab.proxy.wire.answers.tap.Tap." + method, fail)
    for _ in range(2):
        response, through = await post(client, proxy.url + "/v1/chat/completions", CHAT | {"stream": True})
        assert (response.status, through) == (200, direct)
    metrics = await (await client.get(proxy.url + "/metrics")).text()
    assert 'trimtab_fail_open_total{phase="count"} 2.0' in metrics
    assert log.lines[-1]["outcome"] == "unchanged"


async def test_a_client_that_reads_slowly_gets_every_byte_in_its_order(upstream, start_proxy):
    """The upstream waits with much more than all buffers hold, and goes on when the client has caught up."""
    events = [event(f"{number} " + "x" * 1000) for number in range(8000)]

    async def answer(_, request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.force_close()
        await response.prepare(request)
        for chunk in events:
            await response.write(chunk)
        await response.write_eof()
        return response

    upstream.answer = answer
    proxy = await start_proxy()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]), limit=1024)
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
    head = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % len(body) + body)
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    received = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    assert received == b"".join(events)


async def test_nothing_is_written_to_a_client_that_has_left() -> None:
    reply, response = Reply(SimpleNamespace()), PlainResponse()
    protocol = SimpleNamespace(transport=None)
    response._payload_writer = SimpleNamespace(_protocol=protocol, chunked=True, length=None, _headers_buf=None)
    with pytest.raises(ConnectionResetError):
        response.copier(None, reply.lose)(b"x")
    assert (reply.client_left, reply.missed) == (True, b"x")


@pytest.mark.parametrize(
    ("status", "kind", "is_stream"),
    [(200, "text/event-stream", True), (200, "application/json", False), (400, "text/event-stream", False)],
)
async def test_only_a_whole_answer_in_events_is_a_stream(status: int, kind: str, *, is_stream: bool) -> None:
    reply, response = Reply(SimpleNamespace(version=HttpVersion11)), PlainResponse(status=status)
    response.content_type, response.prepare = kind, AsyncMock()
    assert await reply.begin(response) is response
    assert reply.is_stream is is_stream


# An upstream may compress although it was asked not to. Its bytes pass unchanged, and what must be read of them is.

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODE = {
    "gzip": lambda body: gzip.compress(body, mtime=0),
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
    "gzip, br": lambda body: brotli.compress(gzip.compress(body, mtime=0)),
}
SESSION = make_session(70, result_words=120)["messages"][:-1]
DIALECT = DIALECTS[0]


def _coded(body: bytes, coding: str, *, status: int = 200, kind: str = "application/json") -> web.Response:
    wire = CODE[coding](body)
    return web.Response(body=wire, status=status, headers={"Content-Type": kind, "Content-Encoding": coding})


@pytest.mark.parametrize("coding", CODE)
@pytest.mark.parametrize("streams", [False, True])
async def test_coded_answers_pass_unchanged_and_are_counted(coding, streams, *, client, upstream, start_proxy, log):
    """The client gets the upstream's bytes and headers; the tokens are those of the answer."""
    plain, kind = DIALECT.write_answer("All good.", prompt_tokens=50, completion_tokens=777), "application/json"
    if streams:
        plain, kind = b"".join(DIALECT.write_events("All ", "good.", "x" * 900)), "text/event-stream"
    wires = [plain, CODE[coding](plain)]

    async def answer(_recorded, request):
        added = {"Content-Encoding": coding} if len(upstream.requests) == 2 else {}
        response = web.StreamResponse(headers={"Content-Type": kind, **added})
        await response.prepare(request)
        wire = wires[len(upstream.requests) - 1]
        for start in range(0, len(wire), 100):
            await response.write(wire[start : start + 100])
        await response.write_eof()
        return response

    upstream.answer = answer
    proxy = await start_proxy()
    got = [await post(client, proxy.url + DIALECT.path, CHAT | {"stream": streams}) for _ in wires]
    assert [wire for _, wire in got] == wires
    assert got[1][0].headers["Content-Encoding"] == coding
    told = [line["completion_tokens"] for line in log.lines if "completion_tokens" in line]
    assert told[0] == told[1] > 0
    assert streams or told[0] == 777


@pytest.mark.parametrize("coding", ["gzip", "gzip, br"])
async def test_a_coded_refusal_is_recovered_from(coding, client, upstream, start_proxy):
    refusal = next(one for one in DIALECT.refusals if one.told and not one.is_stream)

    async def answer(recorded, _request):
        tokens = len(recorded.body) // 4
        if tokens > 8000:
            return _coded(refusal.write(tokens, 8000), coding, status=refusal.status)
        return _coded(DIALECT.write_answer("All good."), coding)

    upstream.answer = answer
    proxy = await start_proxy()
    response, got = await post(client, proxy.url + DIALECT.path, {"model": "m", "messages": SESSION})
    assert (response.status, len(upstream.chats), response.headers["Content-Encoding"]) == (200, 2, coding)
    assert got == CODE[coding](DIALECT.write_answer("All good."))


def test_what_came_before_a_client_left_is_decoded_to_its_end() -> None:
    """A step for each piece is not enough for one that says much."""
    heard, text = bytearray(), b"text" * STEP_BYTES
    decoding = _Decoding(Mock(feed=lambda chunk, _: heard.extend(chunk)), Reader(["gzip"]))
    decoding.feed(gzip.compress(text), 0.0)
    decoding.finish(is_cut=True)
    assert heard == text


@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_was_promised_a_plain_stream_gets_one(streams, client, upstream, start_proxy):
    events = b'data: {"choices":[{"index":0,"delta":{"content":"good"}}]}\n\ndata: [DONE]\n\n'

    async def answer(recorded, _request):
        if recorded.asks_for_summary:
            await asyncio.sleep(0.01)
            return _coded(completion(write_note("SUMMARY of the work.")).body, "gzip")
        if streams:
            return _coded(events, "gzip", kind="text/event-stream")
        return _coded(b'{"error": {"message": "slow down"}}', "gzip", status=429)

    upstream.answer = answer
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
    proxy.current.services = replace(proxy.services, patience=Patience(0.0, 10.0))
    body = {"model": "m", "messages": SESSION, "stream": True}
    response, got = await post(client, proxy.url + "/v1/chat/completions", body)
    assert "Content-Encoding" not in response.headers
    told = got.replace(COMMENT, b"")
    assert told == (events if streams else b'data: {"error": {"message": "slow down"}}\n\n')
    assert b"SUMMARY of the work." in upstream.chats[-1].body


@pytest.mark.parametrize("coding", ["gzip", "compress"])
async def test_what_cannot_be_decoded_passes(coding, client, upstream, start_proxy):
    """Damaged, cut off, or in a coding that trimtab does not know."""
    wires = [b"odd bytes", gzip.compress(b'{"choices":[]}')[:-9], b""]

    async def answer(_recorded, _request):
        headers = {"Content-Type": "application/json", "Content-Encoding": coding}
        return web.Response(body=wires[len(upstream.requests) - 1], headers=headers)

    upstream.answer = answer
    proxy = await start_proxy()
    for wire in wires:
        response, got = await post(client, proxy.url + "/v1/chat/completions", CHAT)
        assert (response.status, response.headers["Content-Encoding"], got) == (200, coding, wire)


def test_an_upstream_cannot_speak_as_trimtab() -> None:
    """Its headers with names of ours are dropped, in any case, and in spellings that some clients take for the same."""
    raw = [
        (b"X-Trimtab-Outcome", b"compacted"),
        (b"x-trimtab-tokens", b"1"),
        (b"x_trimtab_summary", b"s"),
        (b"X-A", b"1"),
    ]
    raw += [(b"x-trimtab", b"2"), (b"X-TRIMTAB-", b"3"), (b"my-x-trimtab-outcome", b"4")]
    assert answer_headers(raw) == [("X-A", "1"), ("x-trimtab", "2"), ("my-x-trimtab-outcome", "4")]


# The speed of a streamed text.


def test_the_rate_is_that_of_the_text_behind_the_first_chunk() -> None:
    """Half of 400 characters came within 2 seconds after the first half, so half of the 100 tokens did."""
    assert Pace(10.0, 12.0, 200, 400).tokens_per_second(100) == 25.0


@pytest.mark.parametrize(
    ("pace", "tokens"),
    [
        (Pace(), 7),
        (Pace(10.0, 12.0, 400, 400), 100),
        (Pace(10.0, 10.0, 200, 400), 100),
        (Pace(10.0, 10.0 + MIN_SECONDS / 2, 200, 400), 100),
        (Pace(10.0, 12.0, 200, 400), 0),
        (Pace(10.0, 12.0, 200, 400), 2000),
    ],
    ids=["no text", "one chunk", "at once", "out of a buffer", "no tokens", "tokens that were not sent"],
)
def test_what_cannot_be_known_is_not_told(pace: Pace, tokens: int) -> None:
    assert pace.tokens_per_second(tokens) is None


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/other"])
async def test_answer_that_breaks_off_is_never_closed_as_if_whole(path, client, upstream, start_proxy):
    """The client's connection is aborted after the bytes that came."""
    upstream.answer = break_off
    proxy = await start_proxy()
    async with client.post(proxy.url + path, json=CHAT | {"stream": True}) as response:
        assert response.status == 200
        assert await response.content.readany() == event("half")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()


@pytest.mark.parametrize("path", ["/v1/x", "/v1/chat/completions"])
async def test_the_head_of_an_answer_is_the_upstreams(path, upstream, start_proxy):
    """Its headers keep order, case and duplicates, also `Date` and `Server`. Only `Connection` and ours are added."""
    head = [b"Server: theirs", b"X-One: 1", b"date: then", b"x-one: 2", b"Set-Cookie: a", b"Set-Cookie: b"]

    async def bare(_recorded, request):
        request.transport.write(b"\r\n".join((b"HTTP/1.1 200 OK", *head, b"Content-Length: 2", b"", b"ok")))
        request.transport.close()
        return web.Response()

    upstream.answer = bare
    proxy = await start_proxy()
    asked = b"POST %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}" % path.encode()
    answer = await ask_raw(proxy.url, asked)
    lines = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    assert [line for line in lines if not line.lower().startswith((b"x-trimtab", b"server-timing"))] == [
        *head,
        b"Content-Length: 2",
        b"Connection: close",
    ]


async def test_a_reset_is_no_end_of_a_body_without_a_length(client, upstream, start_proxy):
    async def reset(_recorded, request):
        request.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhalf")
        await asyncio.sleep(0)
        reset_transport(request.transport)
        return web.Response()

    upstream.answer = reset
    proxy = await start_proxy()
    with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ClientConnectionError)):
        async with client.get(proxy.url + "/v1/x") as response:
            await response.read()
