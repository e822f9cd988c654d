"""Readers of our own pages that read slowly, or not at all: over real sockets."""

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import orjson
import pytest
from aiohttp import web
from support.client import CHAT, ask_raw, post, wait_until
from support.events import make_event
from yarl import URL

from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.admin import pages, sending
from trimtab.proxy.server.app import run_proxy

PATH = "/trimtab/api/models"
BODY = b"0123456789" * 1_600_000
"""Longer than what the kernel takes for a reader that does not read."""


@pytest.fixture
def big_page(monkeypatch) -> None:
    async def show(_services: object) -> web.Response:
        return web.Response(body=BODY, content_type="application/json")

    monkeypatch.setitem(pages.PAGES, PATH, show)


@asynccontextmanager
async def reading(url: str, path: str = PATH) -> AsyncIterator[asyncio.StreamReader]:
    """A reader that has asked for a page, and has read nothing of it."""
    address = URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=1024)
    writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
    try:
        yield reader
    finally:
        writer.transport.abort()


@pytest.mark.usefixtures("big_page", "upstream")
async def test_a_page_arrives_as_it_is(client, start_proxy) -> None:
    """In pieces, with its length and headers; a HEAD request gets no body."""
    proxy = await start_proxy()
    async with client.get(proxy.url + PATH) as response:
        assert (response.status, response.content_type) == (200, "application/json")
        assert (await response.read(), response.headers["Content-Length"]) == (BODY, str(len(BODY)))
    async with client.head(proxy.url + PATH) as response:
        assert (await response.read(), response.headers["Content-Length"]) == (b"", str(len(BODY)))
    assert not proxy.services.pages_in_flight


@pytest.mark.usefixtures("big_page", "upstream")
async def test_what_is_not_read_counts_as_memory(client, start_proxy) -> None:
    """Until its reader leaves. Without memory there is no page, but there are metrics."""
    proxy = await start_proxy()
    memory = proxy.services.memory
    free_bytes = memory.left_bytes
    async with reading(proxy.url):
        await wait_until(lambda: memory.left_bytes == free_bytes - len(BODY))
    await wait_until(lambda: memory.left_bytes == free_bytes)

    memory.add(1000 - free_bytes)
    async with client.get(proxy.url + PATH) as response:
        assert (response.status, "Retry-After" in response.headers) == (503, True)
    async with client.get(proxy.metrics_url) as response:
        assert response.status == 200


@pytest.mark.usefixtures("big_page", "upstream")
async def test_a_reader_has_so_many_pages_at_once(client, start_proxy) -> None:
    """Further ones are refused, and not made, until it reads or leaves. Health and metrics are not among them."""
    proxy = await start_proxy()
    in_flight = proxy.services.pages_in_flight
    async with AsyncExitStack() as readers:
        for _ in range(sending.MAX_PAGES_OF_ONE):
            await readers.enter_async_context(reading(proxy.url))
        await wait_until(lambda: in_flight.total() == sending.MAX_PAGES_OF_ONE)
        for path, status in ((PATH, 503), ("/trimtab/health", 200), ("/metrics", 200)):
            async with client.get(proxy.url + path) as response:
                assert (response.status, "Retry-After" in response.headers) == (status, status == 503)
    await wait_until(lambda: not in_flight)
    async with client.get(proxy.url + PATH) as response:
        assert response.status == 200


@pytest.mark.usefixtures("big_page", "upstream")
async def test_a_reader_that_takes_nothing_is_gone_after_a_time(start_proxy, monkeypatch) -> None:
    """The same time as for answers. Its connection is reset, so the page does not look complete."""
    monkeypatch.setattr("trimtab.proxy.server.connections.STALLED_SECONDS", 0.05)
    proxy = await start_proxy()
    async with reading(proxy.url) as reader:
        await wait_until(lambda: proxy.services.pages_in_flight.total() == 1)
        await wait_until(lambda: not proxy.services.pages_in_flight)
        with pytest.raises(ConnectionResetError):
            await reader.read(-1)


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Files that are gone when they are asked for: an update of the package removes them for a moment."""
    folder = tmp_path / "page"
    folder.mkdir()
    (tmp_path / "secret.html").write_text("secret", encoding="utf-8")
    for name, text in (("index.html", "<p>hello"), ("page.css", "p {}"), ("page.js", "1"), ("notes.txt", "no")):
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(sending, "FILES", sending.load_files(folder))
    shutil.rmtree(folder)


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize("address", ["listen", "metrics_listen"])
async def test_a_file_is_served_with_its_type_and_safe_headers(address, client, start_proxy):
    proxy = await start_proxy(*(["metrics_listen=127.0.0.1:0"] if address == "metrics_listen" else []))
    root = proxy.metrics_url.removesuffix("metrics") + "trimtab/"
    for name, content_type, body in (
        ("", "text/html; charset=utf-8", "<p>hello"),
        ("index.html", "text/html; charset=utf-8", "<p>hello"),
        ("page.css", "text/css; charset=utf-8", "p {}"),
        ("page.js", "text/javascript; charset=utf-8", "1"),
    ):
        async with client.get(root + name, headers={"If-None-Match": '"another version"'}) as response:
            assert (response.status, await response.text()) == (200, body)
            headers = response.headers
        assert headers["Content-Type"] == content_type
        assert headers["Content-Security-Policy"] == POLICY
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-cache"
        async with client.get(root + name, headers={"If-None-Match": headers["ETag"]}) as response:
            assert (response.status, await response.read()) == (304, b"")


@pytest.mark.usefixtures("page")
async def test_nothing_else_is_served(client, start_proxy):
    proxy = await start_proxy()
    host = proxy.url.removeprefix("http://")
    names = ("notes.txt", "../secret.html", "%2e%2e/secret.html", "..%2fsecret.html", "none.html", "page.css/", "page")
    for name in names:
        answer = await ask_raw(
            proxy.url, f"GET /trimtab/{name} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )
        head, _, body = answer.partition(b"\r\n\r\n")
        # `..` may lead out of our own pages: then the upstream answers.
        assert head.startswith(b"HTTP/1.1 404 ") or body == b"hello"


@pytest.mark.usefixtures("page")
async def test_the_root_leads_to_the_page_also_behind_a_path(client, start_proxy):
    """The redirect is relative, so a proxy that adds a path before it need not change it."""
    proxy = await start_proxy()
    async with client.get(f"{proxy.url}/trimtab", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (308, "trimtab/")
    async with client.get(f"{proxy.url}/trimtab") as response:
        assert (response.status, response.url.path) == (200, "/trimtab/")


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
    monkeypatch.setattr(sending, "COMMENT_SECONDS", 0.01)
    monkeypatch.setattr(sending, "TOTALS_SECONDS", 0.02)
    proxy = await start_proxy()
    async with client.get(f"{proxy.url}/trimtab/api/events") as response:
        await read_events(response, until=":")


@pytest.mark.parametrize("address", ["listen", "metrics_listen"])
async def test_a_stream_ends_when_its_reader_leaves(address, client, start_proxy):
    proxy = await start_proxy(*(["metrics_listen=127.0.0.1:0"] if address == "metrics_listen" else []))
    readers = proxy.services.past.streams
    async with client.get(proxy.metrics_url.removesuffix("metrics") + "trimtab/api/events") as response:
        await read_events(response, until="totals")
        assert readers.readers == 1
        response.close()
    await wait_until(lambda: not readers.readers)


async def test_a_slow_reader_loses_events_and_is_told_so(client, start_proxy, monkeypatch):
    """What waits for it is bounded. What comes after the loss is told again."""
    monkeypatch.setattr(sending, "MAX_WAITING", 3)
    proxy = await start_proxy()
    async with client.get(f"{proxy.url}/trimtab/api/events") as response:
        await read_events(response, until="totals")
        for number in range(4):  # at once, so between two looks
            proxy.services.past.add(make_event(str(number)))
        assert (await read_events(response, until="lost"))[-1] == ("lost", {})
        proxy.services.past.add(make_event("next"))
        assert (await read_events(response, until="request"))[-1][1]["request_id"] == "next"


async def test_a_reader_that_takes_nothing_is_cut_off(start_proxy, client, monkeypatch):
    monkeypatch.setattr(sending, "STALL_SECONDS", 0.05)
    monkeypatch.setattr(sending, "LOOK_SECONDS", 0.0)
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
    monkeypatch.setattr(sending, "MAX_STREAMS", 1)
    proxy = await start_proxy()
    async with client.get(f"{proxy.url}/trimtab/api/events") as response:
        await read_events(response, until="totals")
        async with client.get(f"{proxy.url}/trimtab/api/events") as refused:
            assert refused.status == 503


async def test_a_stream_ends_at_once_when_the_proxy_drains(client, upstream, log, compactors):
    """A request in flight is still served, and no reader is waited for."""
    release, plain = asyncio.Event(), upstream.answer

    async def hold(recorded, request):
        await release.wait()
        return await plain(recorded, request)

    upstream.answer = hold
    settings = ("listen=127.0.0.1:0", "store=memory", "limits.drain_seconds=60", f"upstream.base_url={upstream.url}")
    async with (
        asyncio.TaskGroup() as tasks,
        run_proxy(load_config(settings=settings, environment={}), log, compactors) as proxy,
    ):
        response = await client.get(f"{proxy.url}/trimtab/api/events")
        await read_events(response, until="totals")
        served = tasks.create_task(post(client, f"{proxy.url}/v1/chat/completions", CHAT))
        await upstream.arrived.wait()
        ended = tasks.create_task(asyncio.wait_for(response.content.read(), 30))
        ended.add_done_callback(lambda _: release.set())
    assert (await served)[0].status == 200
