"""Wiring: what is missing at the start, and how the proxy ends."""

import asyncio
import threading
from contextlib import suppress
from unittest.mock import Mock

import pytest
from aiohttp import web
from support.client import CHAT, post
from upstreams.recording import Recorded, event

from trimtab.proxy.account.recordings.writing import measure_recordings
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.values import split_address
from trimtab.proxy.exchange.services import Lifecycle
from trimtab.proxy.server import app
from trimtab.proxy.server.app import run_proxy
from trimtab.proxy.server.workers.worker import SharedResources, Worker


async def test_an_answer_that_the_drain_cuts_ends_in_a_reset(upstream, log, compactors) -> None:
    """A clean end would look like the end of the answer to an HTTP/1.0 client."""

    async def begin(_recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("half"))
        await asyncio.Event().wait()
        return response

    upstream.answer = begin
    settings = ("listen=127.0.0.1:0", f"upstream.base_url={upstream.url}", "store=memory", "limits.drain_seconds=0.1")
    async with run_proxy(load_config(settings=settings, environment={}), log, compactors) as proxy:
        reader, writer = await asyncio.open_connection(*split_address(proxy.url.removeprefix("http://")))
        writer.write(b"GET /v1/responses/r?stream=true HTTP/1.0\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"half")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_the_vocabulary_is_loaded_in_advance_without_the_catalogue(
    start_proxy, compactors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(_: object) -> None:
        raise OSError

    loaded = threading.Event()
    monkeypatch.setattr(app, "load_catalogue", break_off)
    monkeypatch.setattr(app, "FIRST_SECONDS", 0)
    monkeypatch.setattr(compactors, "load", loaded.set)
    await start_proxy()
    assert await asyncio.to_thread(loaded.wait, 60)


async def test_what_recordings_may_use_is_not_for_requests(start_proxy, tmp_path) -> None:
    plain, recording = await start_proxy(), await start_proxy(f"record.dir={tmp_path}/kept")
    taken_bytes = plain.services.memory.left_bytes - recording.services.memory.left_bytes
    assert taken_bytes == measure_recordings(recording.services.config) > 0


async def test_what_has_ended_is_told_to_readers_and_at_the_end(client, upstream, log, compactors) -> None:
    """Also while another request is served: its outcome may wait for others, but never for longer than a reader."""
    arrived, plain = asyncio.Event(), upstream.answer

    async def hold(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        if b"held" in recorded.body:
            arrived.set()
            await asyncio.Event().wait()
        return await plain(recorded, request)

    upstream.answer = hold
    settings = ("listen=127.0.0.1:0", f"upstream.base_url={upstream.url}", "store=memory", "limits.drain_seconds=0.1")
    async with run_proxy(load_config(settings=settings, environment={}), log, compactors) as proxy:
        url = f"{proxy.url}/v1/chat/completions"
        _, writer = await asyncio.open_connection(*split_address(proxy.url.removeprefix("http://")))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 29\r\n\r\n")
        writer.write(b'{"messages":[],"user":"held"}')
        await arrived.wait()
        for asked in (1, 2):
            await post(client, url, CHAT)
            async with client.get(proxy.metrics_url) as page:
                counted = [line for line in (await page.text()).splitlines() if line.startswith("trimtab_requests_t")]
            assert [float(line.split()[-1]) for line in counted] == [asked]
            async with client.get(f"{proxy.url}/trimtab/api/requests") as listed:
                assert len((await listed.json())["requests"]) == asked
        await post(client, url, CHAT)
    writer.close()
    assert [line["outcome"] for line in log.lines if line["event"] == "request"] == [*["unchanged"] * 3, "aborted"]


async def test_a_client_without_a_key_is_the_same_to_all_workers(log, compactors) -> None:
    """Without a file for it, they have the key by which they know such clients from the supervisor."""
    config = load_config(settings=("store=memory", "listen=127.0.0.1:0"), environment={})
    shared, tenants = SharedResources.open(config, 2), set[str]()
    for number in (1, 2):
        worker = Worker(number, 2, (), (), shared.spare_key, shared.metrics, Mock())
        async with app._open_services(config, log, compactors, Lifecycle(), worker) as services:
            tenants.add(services.tenancy.identify(()).id)
    shared.stop_listening()
    shared.metrics.close()
    assert len(tenants) == 1
