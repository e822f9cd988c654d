"""Wiring: what is missing at the start, and how it ends."""

import asyncio
from contextlib import suppress
from uuid import uuid4

import pytest
from aiohttp import web
from support.client import post
from upstreams.recording import Recorded, event

from proxy.compaction.offload import INLINE_BYTES
from proxy.compaction.pool import Compactors
from proxy.config.load import load_config
from proxy.config.values import split_address
from proxy.server.app import run_proxy


@pytest.mark.parametrize("fault", [KeyError("o200k_base"), OSError(), ValueError(), ImportError()])
async def test_estimates_that_cannot_be_had_are_done_without(fault, client, upstream, log, monkeypatch) -> None:
    """That is said once; what is counted late goes by its bytes, and a shutdown lets go of everything."""

    def fail(_vocabulary: str) -> None:
        raise fault

    monkeypatch.setattr("proxy.compaction.pool.Estimator", fail)
    settings = ("listen=127.0.0.1:0", f"upstream.base_url={upstream.url}", "store=memory")
    text = " ".join(uuid4().hex for _ in range(1200))
    assert len(text) > INLINE_BYTES
    async with run_proxy(load_config(settings=settings, environment={}), log, Compactors(log)) as proxy:
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
        metrics = (await (await client.get(proxy.url + "/metrics")).text()).splitlines()

    assert (response.status, "x-trimtab-tokens" in response.headers) == (200, True)
    assert 'trimtab_overhead_seconds_count{phase="glance"} 1.0' in metrics
    missing = [line for line in log.lines if line["event"] == "estimates_missing"]
    assert missing == [{"event": "estimates_missing", "reason": type(fault).__name__, "instead": "bytes"}]
    assert proxy.services.client._session.closed


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_an_answer_that_the_drain_cuts_ends_in_a_reset(version, upstream, log, compactors) -> None:
    """Not in a clean end, which an HTTP/1.0 client would take for the whole."""

    async def begin(_recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("half"))
        await asyncio.Event().wait()
        return response

    upstream.answer = begin
    settings = (
        "listen=127.0.0.1:0",
        f"upstream.base_url={upstream.url}",
        "store=memory",
        "limits.drain_seconds=0.1",
    )
    body = b'{"messages":[{"role":"user","content":"hi"}],"stream":true}'
    head = b"POST /v1/chat/completions HTTP/%s\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (version, len(body))
    async with run_proxy(load_config(settings=settings, environment={}), log, compactors) as proxy:
        reader, writer = await asyncio.open_connection(*split_address(proxy.url.removeprefix("http://")))
        writer.write(head + body)
        await reader.readuntil(b"half")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
