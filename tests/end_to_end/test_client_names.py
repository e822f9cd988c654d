"""Clients with names: log lines and metrics have them, and each client has its own limit."""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from support.client import CHAT, post

from trimtab.proxy.config.schema import Config
from trimtab.proxy.server.app import Proxy
from trimtab.proxy.server.reload import adopt

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
        self._opened = asyncio.Event()
        self._changed = asyncio.Condition()
        self.waiting = 0
        self.arrived = 0

    async def answer(self, _recorded: object, _request: web.BaseRequest) -> web.StreamResponse:
        """Answer once the gate is open."""
        self.arrived += 1
        await self._add(1)
        try:
            await self._opened.wait()
        finally:
            await self._add(-1)
        return web.json_response({"id": "x", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})

    def open(self) -> None:
        """Let every request through, now and later."""
        self._opened.set()

    async def wait_for(self, number: int) -> None:
        """Wait until exactly this many requests are at the gate."""
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: self.waiting == number)

    async def _add(self, number: int) -> None:
        async with self._changed:
            self.waiting += number
            self._changed.notify_all()


@pytest.fixture
def gate(upstream) -> Gate:
    """The gate before the fake upstream."""
    gate = Gate()
    upstream.answer = gate.answer
    return gate


def _change(proxy: Proxy, **changes: object) -> Config:
    return Config.model_validate(proxy.services.config.model_dump() | changes)


async def _wait_until_idle(proxy: Proxy) -> None:
    """Wait until the proxy serves nothing. Then no client has a request in flight."""
    await asyncio.wait_for(proxy.services.lifecycle.idle.wait(), SECONDS)
    assert proxy.services.lifecycle.by_client == {}


def _count(proxy: Proxy, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels."""
    families = text_string_to_metric_families(proxy.services.recorder.metrics.render().decode())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


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
        gate.open()

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
    assert _count(proxy, "trimtab_client_requests_total", client="alice", outcome="limited") == 1
    assert _count(proxy, "trimtab_requests_total", status="429", outcome="limited") == 1
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


async def test_a_reload_changes_limits_and_names_and_no_request_in_flight(client, start_proxy, gate, log) -> None:
    """Requests in flight count against the new limit of their name, and finish, even if their key is gone."""
    proxy = await start_proxy(CLIENTS)
    url = proxy.url + "/v1/chat/completions"

    async def ask(**headers: str) -> int:
        return (await asyncio.wait_for(post(client, url, CHAT, **headers), SECONDS))[0].status

    async with asyncio.TaskGroup() as tasks:
        going = [tasks.create_task(ask(**ALICE))]
        await gate.wait_for(1)
        adopt(proxy.current, _change(proxy, client_keys={"alice": {"key": "key-a", "max_concurrent_requests": 2}}))
        going.append(tasks.create_task(ask(**ALICE)))
        await gate.wait_for(2)
        assert (await ask(**ALICE), await ask(**BOB)) == (429, 401)
        adopt(proxy.current, _change(proxy, client_keys={"alice": {"key": "new", "max_concurrent_requests": 2}}))
        assert (await ask(**ALICE), await ask(Authorization="Bearer new")) == (401, 429)
        adopt(proxy.current, _change(proxy, client_keys={"anna": {"key": "key-a", "max_concurrent_requests": 1}}))
        going.append(tasks.create_task(ask(**ALICE)))
        await gate.wait_for(3)
        assert await ask(**ALICE) == 429
        adopt(proxy.current, _change(proxy, client_keys=("key-a",)))
        going.append(tasks.create_task(ask(**ALICE)))
        await gate.wait_for(4)
        gate.open()

    assert [task.result() for task in going] == [200] * 4
    served = [line.get("client") for line in log.lines if line.get("status") == 200]
    assert sorted(map(str, served)) == ["None", "alice", "alice", "anna"]
