"""Clients with names: log lines and metrics have them, and each client has its own limit."""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from support.client import CHAT, post, wait_until
from support.leaks import read_sample

from trimtab.proxy.server.app import Proxy

CLIENTS = "client_keys={alice: {key: key-a, max_concurrent_requests: 1}, bob: key-b}"
MESSAGES = {"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}]}
REQUESTS: list[tuple[str, Any]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/responses", {"model": "m", "input": "hi"}),
    ("/v1/messages", MESSAGES),
    ("/v1/embeddings", {"model": "m", "input": "hi"}),
]
"""A request of each dialect, and one that no dialect claims."""
SECONDS = 30
ALICE, BOB = {"Authorization": "Bearer key-a"}, {"Authorization": "Bearer key-b"}


class Gate:
    """An upstream's answer that waits until it is let through. `waiting`: the requests at it; `arrived`: all so far."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.waiting = self.arrived = 0

    async def answer(self, _recorded: object, _request: web.BaseRequest) -> web.StreamResponse:
        """Answer once the gate is open."""
        self.arrived += 1
        self.waiting += 1
        try:
            await self.opened.wait()
        finally:
            self.waiting -= 1
        return web.json_response({"id": "x", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})

    async def wait_for(self, number: int) -> None:
        """Wait until exactly this many requests are at the gate."""
        await wait_until(lambda: self.waiting == number)


@pytest.fixture
def gate(upstream) -> Gate:
    """The gate before the fake upstream."""
    gate = Gate()
    upstream.answer = gate.answer
    return gate


async def _wait_until_idle(proxy: Proxy) -> None:
    """Wait until the proxy serves nothing. Then no client has a request in flight."""
    await asyncio.wait_for(proxy.services.lifecycle.idle.wait(), SECONDS)
    assert proxy.services.lifecycle.by_client == {}


@pytest.mark.parametrize(("path", "body"), REQUESTS, ids=[path for path, _ in REQUESTS])
async def test_a_client_at_its_limit_gets_429_and_no_other_client_notices(
    path, body, client, start_proxy, gate, log
) -> None:
    """The error is in the form of the dialect. When the first request has ended, the next one is admitted."""
    proxy = await start_proxy(CLIENTS)
    url = proxy.url + path
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(post(client, url, body, **ALICE))
        await gate.wait_for(1)
        answer, text = await asyncio.wait_for(post(client, url, body, **ALICE), SECONDS)
        other = tasks.create_task(post(client, url, body, **BOB))
        more = tasks.create_task(post(client, url, body, **BOB))
        await gate.wait_for(3)
        gate.opened.set()

    assert [task.result()[0].status for task in (first, other, more)] == [200, 200, 200]
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    assert answer.headers["x-trimtab-outcome"] == "limited"
    error = orjson.loads(text)["error"]
    if path == "/v1/messages":
        assert error["type"] == "rate_limit_error"
    else:
        assert (error["type"], error["code"]) == ("trimtab_error", "client_limit_reached")
    assert "max_concurrent_requests" in error["message"]
    assert gate.arrived == 3
    assert (await post(client, url, body, **ALICE))[0].status == 200
    limited = [line for line in log.lines if line.get("outcome") == "limited"]
    assert [(line["client"], line["status"], line["error"]) for line in limited] == [
        ("alice", 429, "client_limit_reached")
    ]
    assert read_sample(proxy, "trimtab_client_requests_total", client="alice", outcome="limited") == 1
    assert read_sample(proxy, "trimtab_requests_total", status="429", outcome="limited") == 1
    await _wait_until_idle(proxy)


async def test_an_open_websocket_counts_until_it_is_closed(client, start_proxy, upstream) -> None:
    """Over the limit, another handshake gets 429 and never reaches the upstream."""

    async def talk(_recorded, request):
        if "Upgrade" not in request.headers:
            return web.json_response({})
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    upstream.answer = talk
    proxy = await start_proxy(CLIENTS)
    url, chat = proxy.url + "/v1/realtime", proxy.url + "/v1/chat/completions"
    async with client.ws_connect(url, headers=ALICE) as socket:
        await socket.send_str("hello")
        assert await socket.receive_str(timeout=SECONDS) == "hello"
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect(url, headers=ALICE)
        assert (caught.value.status, len(upstream.requests)) == (429, 1)
        assert (await post(client, chat, CHAT, **ALICE))[0].status == 429
        async with client.ws_connect(url, headers=BOB) as other:
            await other.send_str("me too")
            assert await other.receive_str(timeout=SECONDS) == "me too"
    await _wait_until_idle(proxy)
    assert (await post(client, chat, CHAT, **ALICE))[0].status == 200
