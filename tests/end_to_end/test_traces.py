"""The installed program sends traces: with several workers, and while it ends."""

import asyncio
import signal

import aiohttp
import orjson
import pytest
from programs.serving import serving
from support.client import CHAT, SMALL, post
from support.collector import run_collector
from support.sessions import make_session
from upstreams.recording import error

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
STREAMS = 24
"""This many connections reach both workers, except once in eight million runs."""
KEY = "sk-PLANTED-KEY"


async def ask(url: str, body, **headers: str) -> int:
    """Send a request on a new connection; return the status."""
    async with aiohttp.ClientSession() as session:
        response, _ = await post(session, url + "/chat/completions", body, **headers)
        return response.status


@pytest.mark.parametrize("workers", [1, 2])
async def test_spans_of_all_workers_arrive_before_the_process_has_ended(workers, upstream):
    """Each request is one span of the client's trace. No key is in a span or in the log."""
    async with run_collector() as collector:
        settings = [word for setting in (*SMALL, "defaults.overflow_strategy=summarize") for word in ("--set", setting)]
        traces = ("--set", f"tracing.otlp_endpoint={collector.url}", "--set", f"workers={workers}")
        async with serving(*settings, *traces, "--upstream", upstream.url) as (process, url):
            sent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "Authorization": f"Bearer {KEY}"}
            statuses = await asyncio.gather(*(ask(url, CHAT, **sent) for _ in range(STREAMS)))
            statuses.append(await ask(url, {"model": "m", **make_session(30)}, **sent))
            upstream.answer = _refuse
            statuses.append(await ask(url, CHAT, **sent))
            process.send_signal(signal.SIGTERM)
            _, said = await asyncio.wait_for(process.communicate(), 30)
    requests = [span for span in collector.spans if not span.is_summary]
    summaries = [span for span in collector.spans if span.is_summary]

    assert statuses == [200] * (STREAMS + 1) + [429]
    assert [(span.trace, span.parent) for span in requests] == [(TRACE, PARENT)] * (STREAMS + 2)
    assert len({span.id for span in collector.spans}) == len(collector.spans)
    assert {span.parent for span in summaries} <= {span.id for span in requests}
    assert len(summaries) == len(upstream.summaries) > 0
    names = {value for request in upstream.requests for value in request.header("traceparent")}
    assert names == {f"00-{TRACE}-{span.id}-01" for span in collector.spans}
    assert not any(b"PLANTED" in body for body in (*collector.bodies, said))
    assert "library" not in {orjson.loads(line)["event"] for line in said.splitlines()}


async def _refuse(*_):
    return error(429, message=f"slow down {KEY}")
