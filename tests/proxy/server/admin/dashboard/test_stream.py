"""The stream of events: live, bounded, and never in the way."""

import asyncio
import itertools
import time

import aiohttp
import orjson
import pytest
from support.client import CHAT, post, wait_until
from support.events import make_event

from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.admin.dashboard import stream
from trimtab.proxy.server.app import run_proxy


async def read_events(response, *, until: str) -> list[tuple[str, object]]:
    """Events up to and including the first of a name; comments have the name `:`."""
    found = []
    async with asyncio.timeout(30):
        while not found or found[-1][0] != until:
            lines = (await response.content.readuntil(b"\n\n")).decode().strip().splitlines()
            if lines[0].startswith(":"):
                found.append((":", lines[0]))
                continue
            name, data = lines
            found.append((name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))))
    return found


async def ask(client, proxy):
    await post(client, f"{proxy.url}/v1/chat/completions", CHAT)
    await proxy.services.lifecycle.idle.wait()


async def test_a_request_is_told_when_it_ends_and_the_totals_after_it(client, start_proxy):
    """The event is that of the list, and the totals are those of the overview."""
    proxy = await start_proxy()
    async with client.get(f"{proxy.url}/trimtab/api/events") as response:
        assert response.content_type == "text/event-stream"
        (first,) = await read_events(response, until="totals")
        assert first[1]["requests"] == 0
        await ask(client, proxy)
        *_, (_, event) = await read_events(response, until="request")
        *_, (_, totals) = await read_events(response, until="totals")
    async with client.get(f"{proxy.url}/trimtab/api/requests") as listed:
        assert orjson.loads(await listed.read())["requests"] == [event]
    async with client.get(f"{proxy.url}/trimtab/api/overview") as overview:
        assert orjson.loads(await overview.read())["totals"] == totals
    assert totals["requests"] == 1


async def test_silence_is_filled_with_comments(client, start_proxy, monkeypatch):
    monkeypatch.setattr(stream, "COMMENT_SECONDS", 0.01)
    monkeypatch.setattr(stream, "TOTALS_SECONDS", 0.02)
    proxy = await start_proxy()
    async with client.get(f"{proxy.url}/trimtab/api/events") as response:
        await read_events(response, until=":")


@pytest.mark.parametrize("address", ["listen", "metrics_listen"])
async def test_a_stream_ends_when_its_reader_leaves(address, client, start_proxy):
    """At both addresses. Nothing is kept for it."""
    proxy = await start_proxy(*(["metrics_listen=127.0.0.1:0"] if address == "metrics_listen" else []))
    readers = proxy.services.past.streams
    async with client.get(proxy.metrics_url.removesuffix("metrics") + "trimtab/api/events") as response:
        await read_events(response, until="totals")
        assert readers.readers == 1
        response.close()
    await wait_until(lambda: not readers.readers)


async def test_a_slow_reader_loses_events_and_is_told_so(client, start_proxy, monkeypatch):
    """What waits for it is bounded. What comes after the loss is told again."""
    monkeypatch.setattr(stream, "MAX_WAITING", 3)
    proxy = await start_proxy()
    async with client.get(f"{proxy.url}/trimtab/api/events") as response:
        await read_events(response, until="totals")
        for number in range(4):  # at once, so between two looks
            proxy.services.past.add(make_event(str(number)))
        assert (await read_events(response, until="lost"))[-1] == ("lost", {})
        proxy.services.past.add(make_event("next"))
        assert (await read_events(response, until="request"))[-1][1]["request_id"] == "next"


async def test_a_reader_that_takes_nothing_is_cut_off(start_proxy, client, monkeypatch):
    """It never reads, until the buffers between are full."""
    monkeypatch.setattr(stream, "STALL_SECONDS", 0.05)
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.0)
    proxy = await start_proxy()
    host, port = proxy.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1)
    writer.write(b"GET /trimtab/api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    readers, numbers = proxy.services.past.streams, itertools.count()
    await wait_until(lambda: readers.readers == 1)

    def is_cut_off() -> bool:
        for number in itertools.islice(numbers, 0 if proxy.services.past._rows else 20):
            proxy.services.past.add(make_event(str(number), reason="x" * 10_000))
        return not readers.readers

    await wait_until(is_cut_off)
    writer.close()


async def test_only_so_many_may_read_at_once(client, start_proxy, monkeypatch):
    monkeypatch.setattr(stream, "MAX_STREAMS", 1)
    proxy = await start_proxy()
    async with client.get(f"{proxy.url}/trimtab/api/events") as response:
        await read_events(response, until="totals")
        async with client.get(f"{proxy.url}/trimtab/api/events") as refused:
            assert refused.status == 503


async def test_a_stream_ends_at_once_when_the_proxy_drains(client, upstream, log, compactors):
    """A request in flight is still served, and no reader is waited for."""
    release, begun = asyncio.Event(), asyncio.Event()
    plain = upstream.answer

    async def hold(recorded, request):
        begun.set()
        await release.wait()
        return await plain(recorded, request)

    upstream.answer = hold
    settings = ("listen=127.0.0.1:0", "store=memory", "limits.drain_seconds=60")
    config = load_config(settings=(*settings, f"upstream.base_url={upstream.url}"), environment={})
    async with asyncio.TaskGroup() as tasks:
        async with run_proxy(config, log, compactors) as proxy:
            response = await client.get(f"{proxy.url}/trimtab/api/events")
            await read_events(response, until="totals")
            served = tasks.create_task(post(client, f"{proxy.url}/v1/chat/completions", CHAT))
            await begun.wait()
            watched = tasks.create_task(_release_after(response, release))
            started = time.monotonic()
        assert time.monotonic() - started < 30
    assert (await served)[0].status == 200
    assert watched.result()


async def _release_after(response: aiohttp.ClientResponse, release: asyncio.Event) -> bool:
    """Wait for the end of the stream, and only then let the upstream answer."""
    async with asyncio.timeout(30):
        await response.content.read()
    release.set()
    return True
