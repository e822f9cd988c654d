"""Clients with names: log lines and metrics have them, and each client has its own limit."""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from support.client import CHAT, SMALL, post, settle
from support.sessions import make_session, requests_of

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


async def test_requests_of_all_paths_count_together(client, start_proxy, gate) -> None:
    """A request that passes takes the place of one that is compacted."""
    proxy = await start_proxy("client_keys={alice: {key: key-a, max_concurrent_requests: 4}}")
    async with asyncio.TaskGroup() as tasks:
        for path, body in REQUESTS:
            tasks.create_task(post(client, proxy.url + path, body, **ALICE))
        await gate.wait_for(len(REQUESTS))
        for path, body in REQUESTS:
            assert (await post(client, proxy.url + path, body, **ALICE))[0].status == 429
        gate.open()


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


async def _break_off(_recorded, request):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
    request.transport.abort()
    return response


async def _hang_up(_recorded, request):
    request.transport.abort()
    return web.Response()


async def _fail(_recorded, _request):
    return web.Response(status=500)


@pytest.mark.parametrize(
    ("path", "answer"),
    [("/v1/chat/completions", _break_off), ("/v1/chat/completions", _hang_up), ("/v1/embeddings", _fail)],
)
async def test_a_request_that_fails_no_longer_counts(path, answer, client, start_proxy, upstream) -> None:
    """The next request is admitted, whatever the upstream did to the one before."""
    proxy = await start_proxy(CLIENTS)
    upstream.answer = answer
    statuses = []
    for _ in range(3):
        try:
            statuses.append((await post(client, proxy.url + path, CHAT | {"stream": True}, **ALICE))[0].status)
        except aiohttp.ClientError:
            statuses.append(0)  # the stream broke off
        await _wait_until_idle(proxy)

    assert 429 not in statuses
    assert len(upstream.requests) >= 3


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_a_request_whose_client_has_left_no_longer_counts(path, client, start_proxy, upstream, gate) -> None:
    """The connection is closed while the upstream has not answered."""
    proxy = await start_proxy(CLIENTS)
    for _ in range(3):
        async with asyncio.TaskGroup() as tasks:
            request = tasks.create_task(post(client, proxy.url + path, CHAT, **ALICE))
            await gate.wait_for(1)
            assert proxy.services.lifecycle.count_of("alice") == 1
            request.cancel()
        await gate.wait_for(0)
        await _wait_until_idle(proxy)
    gate.open()
    assert (await post(client, proxy.url + path, CHAT, **ALICE))[0].status == 200


async def test_requests_that_trimtab_refuses_do_not_count(client, start_proxy) -> None:
    """Those with an unknown profile, and those over the limit themselves."""
    proxy = await start_proxy(CLIENTS)
    url = proxy.url + "/v1/chat/completions"
    for _ in range(3):
        assert (await post(client, url, CHAT, **ALICE, **{"x-trimtab-profile": "none"}))[0].status == 400
    assert (await post(client, url, CHAT, **ALICE))[0].status == 200


async def test_the_next_request_is_admitted_as_soon_as_the_answer_is_complete(
    client, start_proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even while trimtab still works on the request before, for example writes what it has learned.

    Each request has its own connection; on one connection, the second would wait for the first anyway.
    """
    going_on, may_end = asyncio.Event(), asyncio.Event()

    async def observe(*_: object, **_more: object) -> None:
        going_on.set()
        await may_end.wait()

    monkeypatch.setattr("trimtab.proxy.exchange.answer.observe", observe)
    proxy = await start_proxy(CLIENTS)
    url = proxy.url + "/v1/chat/completions"
    async with aiohttp.ClientSession() as another:
        for session in (client, another):
            assert (await asyncio.wait_for(post(session, url, CHAT, **ALICE), SECONDS))[0].status == 200
            await asyncio.wait_for(going_on.wait(), SECONDS)
        assert proxy.services.lifecycle.in_flight == 2
        may_end.set()


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


async def test_log_lines_and_metrics_go_by_name(client, start_proxy, log) -> None:
    """A client is named with its tokens before and after compaction. The key is nowhere."""
    proxy = await start_proxy("client_keys={alice: key-a, bob: key-b}", "upstream.api_key=own", *SMALL)
    url, session = proxy.url + "/v1/chat/completions", make_session(40)
    for messages in requests_of(session):
        assert (await post(client, url, {"model": "m", "messages": messages}, **ALICE))[0].status == 200
        await settle(proxy)
    assert (await post(client, url, CHAT, **BOB))[0].status == 200
    assert (await post(client, url, CHAT, Authorization="Bearer key-c"))[0].status == 401

    lines = [line for line in log.lines if line["event"] == "request"]
    assert [line.get("client") for line in lines[-2:]] == ["bob", None]
    assert {line["client"] for line in lines[:-2]} == {"alice"}
    sums = {
        "original": sum(line["original_tokens"] for line in lines[:-2]),
        "sent": sum(line["sent_tokens"] for line in lines[:-2]),
        "completion": sum(line["completion_tokens"] for line in lines[:-2]),
    }
    assert sums["sent"] < sums["original"]
    for stage, tokens in sums.items():
        assert _count(proxy, "trimtab_client_tokens_total", client="alice", stage=stage) == tokens > 0
    assert _count(proxy, "trimtab_client_requests_total", client="alice") == len(lines) - 2
    assert _count(proxy, "trimtab_client_requests_total", client="bob", outcome="unchanged") == 1
    assert _count(proxy, "trimtab_client_requests_total") == len(lines) - 1
    page = proxy.services.recorder.metrics.render().decode()
    assert not [key for key in ("key-a", "key-b", "key-c") if key in f"{page}{log.lines}"]


async def test_a_name_of_any_printable_characters_is_one_label(client, start_proxy) -> None:
    """Quotes and backslashes in it do not break the page of metrics."""
    names = ['Zoë "z" \\ {x="y"}', "team 7, CI", "🚢"]
    clients = orjson.dumps({name: f"key-{index}" for index, name in enumerate(names)}).decode()
    proxy = await start_proxy(f"client_keys={clients}")
    for index, name in enumerate(names):
        answer, _ = await post(client, proxy.url + "/v1/embeddings", CHAT, Authorization=f"Bearer key-{index}")
        assert answer.status == 200
        assert _count(proxy, "trimtab_client_requests_total", client=name, outcome="passed") == 1
