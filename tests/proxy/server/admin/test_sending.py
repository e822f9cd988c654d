"""Readers of our own pages that read slowly, or not at all: over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import orjson
import pytest
from aiohttp import web
from support.client import wait_until
from yarl import URL

from trimtab.proxy.server.admin import pages, sending
from trimtab.proxy.server.admin.dashboard import api

PATH = "/trimtab/api/models"
LISTED = {"requests": ["0123456789" * 100_000] * 16}
BODY = orjson.dumps(LISTED)
"""Longer than what the kernel takes for a reader that does not read."""


@pytest.fixture(params=["own page", "page of the dashboard"])
def big_page(request, monkeypatch) -> None:
    """A page of ours that is long."""

    async def show(_services: object) -> web.Response:
        return web.Response(body=BODY, content_type="application/json")

    async def show_list(_services: object, _query: object) -> dict[str, list[str]]:
        return LISTED

    if request.param == "own page":
        monkeypatch.setitem(pages.PAGES, PATH, show)
    else:
        monkeypatch.delitem(pages.PAGES, PATH)
        monkeypatch.setitem(api.LISTS, "models", show_list)


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
