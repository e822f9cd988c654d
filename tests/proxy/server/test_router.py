"""Requests that no codec claims pass through. Also: our own pages, and our own refusals."""

import asyncio
import socket

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from msgspec.structs import replace
from support.client import CHAT, ask_raw
from support.journeys import run_stages
from yarl import URL

from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.server.router import Current


async def test_any_method_and_query_passes(client, upstream, start_proxy):
    """The path goes out as written, with its escapes and its query. Body and answer pass, too."""
    proxy = await start_proxy()
    path = "/v1/files/a%2Fb%20c/x?q=%7B1%7D&q=2&e"
    for method, body in (("GET", b""), ("PATCH", b"\x00\xffbytes"), ("OPTIONS", b""), ("PURGE", b"x")):
        async with client.request(method, URL(proxy.url + path, encoded=True), data=body or None) as response:
            assert (response.status, response.headers["X-Up"]) == (200, "1")
            assert await response.read() == (body or b"hello")
        received = upstream.requests[-1]
        assert (received.method, received.path, received.body) == (method, path, body)


async def test_any_status_passes_with_its_headers(client, upstream, start_proxy):
    """Redirects are not followed, refusals are not retried, and cookies are not kept."""
    statuses = [204, 304, 301, 429, 500]

    async def answer(_recorded, _request):
        headers = [("Location", "http://example.invalid/"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
        return web.Response(status=statuses[len(upstream.requests) - 1], headers=[*headers, ("Retry-After", "7")])

    upstream.answer = answer
    proxy = await start_proxy()
    for status in statuses:
        async with client.get(proxy.url + "/v1/models", allow_redirects=False) as response:
            assert response.status == status
            assert response.headers.getall("Set-Cookie") == ["a=1", "b=2"]
            assert response.headers["Retry-After"] == "7"
    assert len(upstream.requests) == len(statuses)
    assert upstream.requests[-1].header("cookie") == []


async def test_client_that_waits_for_leave_is_told_to_go_on(upstream, start_proxy):
    """`Expect: 100-continue` is answered before the body is sent, and is not forwarded."""
    proxy = await start_proxy()
    url = URL(proxy.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"body")
    assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()
    assert upstream.requests[0].body == b"body"
    assert upstream.requests[0].header("expect") == []
    old = b"POST /v1/files HTTP/1.0\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody"
    assert (await ask_raw(proxy.url, old)).startswith(b"HTTP/1.0 200")


async def test_an_upstream_that_gives_nothing_is_told(client, start_proxy, log, upstream):
    """With 502 or 504, in OpenAI's form, and a sentence that says what to check. The log has it, too."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        proxy = await start_proxy(f"upstream.base_url=http://127.0.0.1:{closed.getsockname()[1]}/v1")
        for path in ("/v1/chat/completions", "/v1/embeddings"):
            async with client.post(proxy.url + path, json=CHAT) as response:
                failure = orjson.loads(await response.read())["error"]
                assert response.status == 502
            assert (failure["type"], failure["code"]) == ("trimtab_error", "upstream_unreachable")
            assert "check upstream.base_url" in failure["message"]
            assert (log.lines[-1]["error"], log.lines[-1]["reason"]) == (failure["code"], failure["message"])

    async def stall(_recorded, _request):
        await asyncio.Event().wait()

    upstream.answer = stall
    proxy = await start_proxy("upstream.read_timeout_seconds=0.2")
    async with client.post(proxy.url + "/v1/chat/completions", json=CHAT) as response:
        assert response.status == 504
        assert orjson.loads(await response.read())["error"]["code"] == "upstream_timeout"


async def test_too_many_requests_are_turned_away(client, upstream, start_proxy):
    """Above the limit, the answer is 503 with Retry-After. Health stays reachable."""
    release = asyncio.Event()

    async def hold(_recorded, _request):
        await release.wait()
        return web.Response()

    upstream.answer = hold
    proxy = await start_proxy("limits.max_concurrent_requests=1")

    async def ask() -> int:
        async with client.post(proxy.url + "/v1/chat/completions", json=CHAT) as response:
            return response.status

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(ask())
        await asyncio.wait_for(upstream.arrived.wait(), 30)
        async with client.post(proxy.url + "/v1/chat/completions", json=CHAT) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert orjson.loads(await response.read())["error"]["code"] == "overloaded"
        async with client.get(proxy.url + "/trimtab/health") as response:
            assert response.status == 200
        release.set()
    assert first.result() == 200


async def test_no_tunnel_is_opened(upstream, start_proxy):
    proxy = await start_proxy()
    url = URL(proxy.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"CONNECT example.invalid:443 HTTP/1.1\r\nHost: example.invalid:443\r\n\r\n")
    assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 405")
    writer.close()
    await writer.wait_closed()
    assert upstream.requests == []


@pytest.mark.parametrize("pages", [False, True])
async def test_our_own_answers_name_no_library(pages, start_proxy):
    """Pages, refusals and the parser's refusals have no `Server` header, at both addresses."""
    proxy = await start_proxy("metrics_listen=127.0.0.1:0")
    for request in (
        b"GET /trimtab/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /trimtab/nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01garbage\r\n\r\n",
    ):
        answer = await ask_raw(proxy.metrics_url if pages else proxy.url, request)
        assert answer.startswith(b"HTTP/1.")
        assert b"\r\nserver:" not in answer.lower()
        assert b"aiohttp" not in answer


# Which services serve a request, and when its connection ends.


async def test_a_request_keeps_the_services_that_it_began_with(compactors: Compactors) -> None:
    """A reload while it is served does not change them. The next request has the new ones."""
    served: list[Services] = []
    begun, release = asyncio.Event(), asyncio.Event()

    async def handle(services: Services, _: web.BaseRequest) -> web.Response:
        begun.set()
        await release.wait()
        served.append(services)
        return web.Response()

    async with run_stages(compactors) as stages:
        before, after = stages.services, replace(stages.services, previous=stages.services.previous)
        current = Current(before)
        answer = current.serve_by(handle)
        async with asyncio.TaskGroup() as group:
            group.create_task(answer(make_mocked_request("GET", "/")))
            await begun.wait()
            current.services = after
            release.set()
        await answer(make_mocked_request("GET", "/"))
    assert served[0] is before
    assert served[1] is after
    assert before is not after


@pytest.mark.parametrize(
    ("headers", "stays"), [({}, True), ({"Upgrade": "WebSocket"}, True), ({"Upgrade": "h2c"}, False)], ids=str
)
async def test_a_connection_ends_that_loses_what_comes_next(
    headers: dict[str, str], stays: object, compactors: Compactors
) -> None:
    """So the client sends the lost request again. Neither the source nor the kind of the answer matters."""

    async def handle(_: Services, request: web.BaseRequest) -> web.Response:
        return web.Response(text=request.path)

    async with run_stages(compactors) as stages:
        response = await Current(stages.services).serve_by(handle)(make_mocked_request("GET", "/a", headers=headers))
    assert (response.keep_alive is not False) is stays


async def test_head_has_no_body_and_keeps_its_length(client, upstream, start_proxy):
    """The answer has the upstream's headers, including Content-Length."""

    async def answer(_recorded, _request):
        return web.Response(body=b"12345")

    upstream.answer = answer
    proxy = await start_proxy()
    async with client.head(proxy.url + "/v1/models") as response:
        assert (response.status, response.headers["Content-Length"]) == (200, "5")
