"""Spans that reach a collector: requests go through a real proxy."""

import asyncio
import socket
import threading
import time

import aiohttp
import pytest
from aiohttp import web
from support.client import CHAT, SMALL, post, settle
from support.collector import Collector, run_collector, sending_soon
from support.sessions import make_session, requests_of
from upstreams.recording import break_off, error, event, hold_summaries

from trimtab.proxy.telemetry import otlp
from trimtab.proxy.telemetry.otlp import Spans

CLIENT = 3
"""The kind of a span that is a client's. Source: opentelemetry/proto/trace/v1/trace.proto."""
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
ANSWER = (
    b'{"id":"c","model":"m-2026","choices":[{"message":{"role":"assistant","content":"\\"model\\": \\"no\\""}}],'
    b'"usage":{"prompt_tokens":11,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}'
)
LONG = {"model": "m", **make_session(40)}


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    with sending_soon(monkeypatch):
        yield


@pytest.fixture
async def collector():
    """A collector."""
    async with run_collector() as running:
        yield running


@pytest.fixture
def start(start_proxy, collector: Collector):
    """A function that starts a proxy that sends its spans to the collector; returns the URL for chats."""

    async def begin(*settings: str) -> str:
        proxy = await start_proxy(*SMALL, f"tracing.otlp_endpoint={collector.url}", *settings)
        begin.proxy = proxy
        return f"{proxy.url}/v1/chat/completions"

    return begin


def name_parents(request) -> list[tuple[str, str]]:
    """Trace and span in each `traceparent` of a request that is sampled."""
    parts = [value.split("-") for value in request.header("traceparent")]
    assert all(int(flags, 16) & 1 for *_, flags in parts)
    return [(trace, span) for _, trace, span, _ in parts]


async def test_a_call_is_one_span(client, start, collector, upstream):
    url = await start("tracing.service_name=here", "models=[{match: 'm*'}]")

    async def answer(*_):
        return web.Response(body=ANSWER, content_type="application/json")

    upstream.answer = answer
    before = time.time_ns()
    response, _ = await post(client, url, {**CHAT, "max_tokens": 77})
    (span,) = await collector.wait_for(1)
    port = int(upstream.url.rpartition(":")[2].partition("/")[0])

    assert (span.name, span.kind, span.parent, span.is_error) == ("chat m", CLIENT, "", False)
    assert before <= span.start <= span.events["trimtab.sent"] <= span.end <= time.time_ns()
    assert span.resource["service.name"] == "here"
    told = span.attributes
    assert told.pop("trimtab.overhead_seconds") > 0
    assert told.pop("trimtab.request_id") == response.headers["x-trimtab-request-id"]
    assert told.pop("trimtab.upstream") == f"127.0.0.1:{port}"
    assert told.pop("trimtab.tokens.limit") > 1000
    tokens = told.pop("trimtab.tokens.original")
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.request.max_tokens": 77,
        "gen_ai.response.model": "m-2026",
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": port,
        "trimtab.endpoint": "chat",
        "trimtab.mode": "enforce",
        "trimtab.outcome": "unchanged",
        "trimtab.rules": [],
        "trimtab.tokens.sent": tokens,
        "trimtab.tokens.saved": 0,
    } | {name: told[name] for name in told if name.startswith("trimtab.cost")}
    assert collector.paths == ["/v1/traces"]


async def test_the_trace_of_the_client_goes_on(client, start, collector, upstream):
    url = await start()
    sent = {"traceparent": TRACEPARENT, "tracestate": "a=1,b=2", "baggage": "k=v"}
    await post(client, url, CHAT, **sent)
    (span,) = await collector.wait_for(1)
    (request,) = upstream.requests

    assert (span.trace, span.parent) == (TRACE, PARENT)
    assert request.header("traceparent") == [f"00-{TRACE}-{span.id}-01"]
    assert request.header("tracestate") == ["a=1,b=2"]
    assert request.header("baggage") == ["k=v"]


@pytest.mark.parametrize("given", [f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-x"])
async def test_a_parent_that_cannot_be_read_begins_a_new_trace(given, client, start, collector, upstream):
    """Its state goes, too, since it belongs to that parent."""
    url = await start()
    await post(client, url, CHAT, traceparent=given, tracestate="a=1")
    (span,) = await collector.wait_for(1)
    (request,) = upstream.requests

    assert (span.parent, span.trace != TRACE) == ("", True)
    assert name_parents(request) == [(span.trace, span.id)]
    assert request.header("tracestate") == []


async def test_what_the_client_does_not_sample_is_not_sent(client, start, collector, upstream):
    url = await start()
    await post(client, url, CHAT, traceparent=f"00-{TRACE}-{PARENT}-00")
    await post(client, url, CHAT)
    spans = await collector.wait_for(1)

    assert [span.parent for span in spans] == [""]
    (first,) = upstream.requests[0].header("traceparent")
    assert (first[:36], first[-3:], first == f"00-{TRACE}-{PARENT}-00") == (f"00-{TRACE}-", "-00", False)


async def test_without_tracing_headers_pass_unchanged(client, start_proxy, collector, upstream):
    proxy = await start_proxy()
    await post(client, f"{proxy.url}/v1/chat/completions", CHAT, traceparent="nonsense", tracestate="a=1")
    (request,) = upstream.requests
    assert (request.header("traceparent"), request.header("tracestate")) == (["nonsense"], ["a=1"])
    assert collector.bodies == []


async def test_a_stream_ends_its_span_at_its_last_byte(client, start, collector, upstream):
    url = await start()
    release, times = asyncio.Event(), []

    async def hold(_recorded, request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("one two three"))
        await release.wait()
        times.append(time.time_ns())
        await response.write(event("four five six"))
        await response.write_eof()
        return response

    upstream.answer = hold
    asking = asyncio.ensure_future(post(client, url, {**CHAT, "stream": True}))
    await upstream.arrived.wait()
    assert collector.spans == []
    release.set()
    await asking
    (span,) = await collector.wait_for(1)

    assert span.end >= times[0] > span.events["trimtab.sent"]
    assert span.attributes["gen_ai.request.stream"] is True
    assert span.attributes["gen_ai.usage.output_tokens"] > 0
    first_seconds = span.attributes["gen_ai.response.time_to_first_chunk"]
    # Spans have the time of day, what is measured the monotonic clock: both are read one after the other.
    assert 0 < first_seconds <= (span.end - span.events["trimtab.sent"]) / 1e9 + 1


async def test_a_summary_is_a_child(client, start, collector, upstream):
    url = await start()
    response, _ = await post(client, url, LONG, traceparent=TRACEPARENT)
    await collector.wait_until(lambda: not all(span.is_summary for span in collector.spans))
    (request,) = [span for span in collector.spans if not span.is_summary]
    summary, *others = [span for span in collector.spans if span.is_summary]
    asked, *_ = upstream.summaries
    (sent,) = upstream.chats

    assert (request.trace, request.parent, summary.trace, summary.parent) == (TRACE, PARENT, TRACE, request.id)
    assert request.start <= summary.start <= summary.end <= request.events["trimtab.sent"] <= request.end
    assert asked.header("traceparent") == [f"00-{TRACE}-{summary.id}-01"]
    assert sent.header("traceparent") == [f"00-{TRACE}-{request.id}-01"]
    assert all(other.parent == request.id for other in others)
    assert len(others) + 1 == len(upstream.summaries)
    assert summary.kind == CLIENT
    assert (summary.attributes["trimtab.summary.result"], "error.type" in summary.attributes) == ("written", False)
    assert summary.attributes["gen_ai.usage.output_tokens"] == 7
    assert summary.attributes["http.response.status_code"] == 200
    told = request.attributes
    assert (told["gen_ai.conversation.compacted"], told["trimtab.summary.kind"]) == (True, "summarise")
    original, sent, saved = [told[f"trimtab.tokens.{name}"] for name in ("original", "sent", "saved")]
    assert response.headers["x-trimtab-tokens"].startswith(f"original={original}, sent={sent}, ")
    assert saved == original - sent


async def test_a_summary_that_nobody_waits_for_is_a_child_too(client, start, collector, upstream):
    """It may end after the request that began it."""
    url, session = await start("defaults.summary.max_tokens=300"), make_session(60, result_words=120)
    release = hold_summaries(upstream)
    for messages in [*requests_of(session)][30:]:
        await post(client, url, {"model": "m", "messages": messages, "tools": session["tools"]})
        if start.proxy.services.summaries._under_way:
            break
    (last,) = upstream.chats[-1].header("traceparent")
    release.set()
    await settle(start.proxy)
    await collector.wait_until(lambda: any(span.is_summary for span in collector.spans))
    await collector.wait_for(len(upstream.requests))
    request = next(span for span in collector.spans if span.id == last.split("-")[2])
    summary = next(span for span in collector.spans if span.is_summary)

    assert (summary.parent, summary.trace) == (request.id, request.trace)
    assert summary.end > request.end


async def test_an_error_is_told_by_its_kind(client, start, collector, upstream):
    """The upstream's status, an answer that broke off, a client that left, an upstream that cannot be reached."""
    url = await start()

    async def never(*_):
        await asyncio.Event().wait()

    upstream.answer = break_off
    with pytest.raises(aiohttp.ClientPayloadError):
        await post(client, url, {**CHAT, "stream": True})
    await collector.wait_for(1)
    upstream.answer = never
    upstream.arrived.clear()
    asking = asyncio.ensure_future(post(client, url, CHAT))
    await upstream.arrived.wait()
    asking.cancel()
    await collector.wait_for(2)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    await post(client, await start(f"upstream.base_url=http://127.0.0.1:{port}/v1"), CHAT)
    spans = await collector.wait_for(3)

    assert [span.is_error for span in spans] == [True] * 3
    assert [span.attributes["error.type"] for span in spans] == ["broken", "aborted", "upstream_unreachable"]
    assert [span.attributes.get("http.response.status_code") for span in spans][::2] == [200, 502]


async def test_each_change_of_the_collector_is_told_once(client, start, collector, log):
    url = await start()
    collector.status = 400
    for count in range(1, 4):
        await post(client, url, CHAT)
        await collector.wait_until(lambda count=count: len(collector.bodies) >= count)
    collector.status = 200
    await post(client, url, CHAT)
    await collector.wait_for(1)
    await start.proxy.services.spans.close()

    told = [line["event"] for line in log.lines if line["event"].startswith("traces")]
    assert told == ["traces_not_sent", "traces_sent_again"]


async def test_the_last_spans_are_sent_at_the_end(client, start, collector, monkeypatch):
    """Even if they would have waited for others."""
    monkeypatch.setattr(otlp, "DELAY_MILLISECONDS", 60_000)
    url = await start()
    await post(client, url, CHAT)
    await start.proxy.services.lifecycle.idle.wait()
    assert collector.spans == []
    await start.proxy.services.spans.close()
    assert len(collector.spans) == 1


async def test_a_collector_that_never_answers_does_not_hold_up_the_end(log, monkeypatch):
    spans, answered = Spans("http://127.0.0.1:9", "x", "1", log), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(otlp, "FLUSH_SECONDS", 0.01)
        patch.setattr(spans._processor, "shutdown", answered.wait)
        await asyncio.wait_for(spans.close(), 30)
    assert not answered.is_set()
    answered.set()
    await spans.close()


async def test_too_many_spans_are_dropped_and_that_is_told_once(collector, log, monkeypatch):
    monkeypatch.setattr(otlp, "DELAY_MILLISECONDS", 60_000)
    monkeypatch.setattr(otlp, "MAX_WAITING_SPANS", 4)
    monkeypatch.setattr(otlp, "MAX_BATCH_SPANS", 4)
    spans = Spans("http://127.0.0.1:9", "x", "1", log)
    batches = spans._processor._batch_processor
    with monkeypatch.context() as patch:
        patch.setattr(batches, "_worker_awaken", threading.Event())  # else the thread is woken and takes the spans
        for _ in range(9):
            spans.start("chat", {}).end()
        assert len(batches._queue) == 4
    await spans.close()

    assert [line["event"] for line in log.lines if line["event"] != "traces_not_sent"] == ["traces_incomplete"]


async def test_no_key_and_no_text_is_in_a_span(client, start, collector, upstream):
    url = await start()
    session = make_session(40)
    for message in session["messages"]:
        message["content"] = f"PLANTED TEXT {message['content']}"
    headers = {
        "Authorization": "Bearer sk-PLANTED-KEY",
        "x-odd": "PLANTED TEXT",
        "Cookie": "a=sk-PLANTED-KEY",
        "User-Agent": "PLANTED TEXT",
    }
    body = {"model": "m sk-PLANTED-KEY", "user": "PLANTED TEXT", **session}
    await post(client, f"{url}?key=sk-PLANTED-KEY", body, **headers)
    await collector.wait_for(2)

    async def fail(*_):
        return error(500, message="PLANTED TEXT sk-PLANTED-KEY", type="PLANTED TEXT")

    upstream.answer = fail
    await post(client, url, body, **headers)
    await collector.wait_for(3)

    assert any(b"PLANTED" in request.body for request in upstream.requests)
    assert not any(b"PLANTED" in body for body in collector.bodies)
