"""What happens when something fails: each row of the design's table that applies."""

import asyncio
import socket

import aiohttp
import orjson
import pytest
from aiohttp import web
from fake_upstream import event
from sessions import make_session

import proxy.compaction

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
SMALL = ("defaults.context_window=8000", "defaults.completion_reserve=1000", "defaults.max_tool_result_tokens=2000")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"model":"m"}',
        b'{"messages":5}',
        b'{"messages":[5]}',
        b'{"messages":[{}]}',
        b"\xff\x00",
    ],
)
async def test_what_is_no_chat_request_is_forwarded_for_the_upstream_to_judge(body, client, upstream, start_proxy):
    """The very bytes reach the upstream, and its answer the client."""

    async def judge(_recorded, _request):
        return web.Response(status=400, body=b"no good")

    upstream.answer = judge
    proxy = await start_proxy()
    async with client.post(proxy.url + "/v1/chat/completions", data=body) as response:
        assert (response.status, await response.read()) == (400, b"no good")
    assert upstream.requests[0].body == body


@pytest.mark.parametrize("chunked", [False, True])
async def test_body_over_the_bound_streams_through(chunked, client, upstream, start_proxy):
    """It is neither decoded nor compacted, and it is counted."""
    proxy = await start_proxy(*SMALL, "limits.max_body_bytes=20000")
    body = orjson.dumps({"model": "m", "messages": make_session(60)["messages"][:-1]})

    async def pieces():
        for start in range(0, len(body), 5000):
            yield body[start : start + 5000]

    async with client.post(proxy.url + "/v1/chat/completions", data=pieces() if chunked else body) as response:
        assert response.status == 200
    assert upstream.requests[0].body == body
    async with client.get(proxy.url + "/metrics") as metrics:
        assert 'outcome="too_large",status="200"} 1.0' in (await metrics.read()).decode()


@pytest.mark.parametrize("method", ["plan", "apply"])
async def test_fault_inside_compaction_forwards_the_original(method, client, upstream, start_proxy, log, monkeypatch):
    """The request goes out as it came; the fault is counted and logged by its type, without a word of text."""

    def fail(*_: object) -> None:
        message = "planted secret text"
        raise ZeroDivisionError(message)

    monkeypatch.setattr(proxy.compaction.Compactor, method, fail)
    running = await start_proxy(*SMALL)
    body = orjson.dumps({"model": "m", "messages": make_session(60)["messages"][:-1]})
    async with client.post(running.url + "/v1/chat/completions", data=body) as response:
        assert response.status == 200
    assert [recorded.body for recorded in upstream.chats] == [body]
    async with client.get(running.url + "/metrics") as metrics:
        assert f'trimtab_fail_open_total{{phase="{method}"}} 1.0' in (await metrics.read()).decode()
    assert {"event": "fail_open", "phase": method, "error": "ZeroDivisionError"}.items() <= log.lines[0].items()
    assert "planted" not in str(log.lines)


async def test_unreachable_upstream_is_502(client, start_proxy):
    """With OpenAI's error shape, and a sentence that says what to check."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        proxy = await start_proxy(f"upstream.base_url=http://127.0.0.1:{port}/v1")
        for path in ("/v1/chat/completions", "/v1/embeddings"):
            async with client.post(proxy.url + path, json=CHAT) as response:
                failure = orjson.loads(await response.read())["error"]
                assert response.status == 502
            assert (failure["type"], failure["code"]) == ("trimtab_error", "upstream_unreachable")
            assert "check upstream.base_url" in failure["message"]


async def test_upstream_that_goes_away_before_it_answers_is_502_and_not_asked_again(client, upstream, start_proxy):
    """A POST is never sent twice."""

    async def vanish(_recorded, request):
        request.transport.abort()
        return web.Response()

    upstream.answer = vanish
    proxy = await start_proxy()
    async with client.post(proxy.url + "/v1/chat/completions", json=CHAT) as response:
        assert response.status == 502
    assert len(upstream.requests) == 1


async def test_silent_upstream_is_504(client, upstream, start_proxy):
    """Before the first byte, read_timeout_seconds ends the wait."""

    async def stall(_recorded, _request):
        await asyncio.Event().wait()

    upstream.answer = stall
    proxy = await start_proxy("upstream.read_timeout_seconds=0.2")
    async with client.post(proxy.url + "/v1/chat/completions", json=CHAT) as response:
        assert response.status == 504
        assert orjson.loads(await response.read())["error"]["code"] == "upstream_timeout"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/other"])
async def test_answer_that_breaks_off_is_never_closed_as_if_whole(path, client, upstream, start_proxy):
    """The client's connection is aborted after the bytes that came."""

    async def break_off(_recorded, request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("half"))
        request.transport.abort()
        return response

    upstream.answer = break_off
    proxy = await start_proxy()
    async with client.post(proxy.url + path, json=CHAT | {"stream": True}) as response:
        assert response.status == 200
        assert await response.content.readany() == event("half")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()


@pytest.mark.parametrize("started", [False, True])
async def test_client_that_leaves_cancels_the_upstreams_work(started, client, upstream, start_proxy):
    """Before the first byte as well as in the middle of a stream."""

    async def endless(_recorded, request):
        if started:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(event("one"))
        await asyncio.Event().wait()

    upstream.answer = endless
    proxy = await start_proxy()

    async def ask() -> None:
        async with client.post(proxy.url + "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
            await response.content.readany()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask())
        await asyncio.wait_for(upstream.arrived.wait(), 5)
        asking.cancel()
    await asyncio.wait_for(upstream.cancelled.wait(), 5)


async def test_chunks_leave_as_they_arrive(client, upstream, start_proxy):
    """Each chunk reaches the client before the upstream writes the next one."""
    received = asyncio.Event()

    async def step_by_step(_recorded, request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for text in ("one", "two", "three"):
            received.clear()
            await response.write(event(text))
            await asyncio.wait_for(received.wait(), 5)
        await response.write_eof()
        return response

    upstream.answer = step_by_step
    proxy = await start_proxy()
    chunks = []
    async with client.post(proxy.url + "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
        async for chunk in response.content.iter_any():
            chunks.append(chunk)
            received.set()
    assert chunks == [event("one"), event("two"), event("three")]


async def test_too_many_requests_are_turned_away(client, upstream, start_proxy):
    """Beyond the bound: 503 with Retry-After; health stays reachable."""
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
        await asyncio.wait_for(upstream.arrived.wait(), 5)
        async with client.post(proxy.url + "/v1/chat/completions", json=CHAT) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert orjson.loads(await response.read())["error"]["code"] == "overloaded"
        async with client.get(proxy.url + "/trimtab/health") as response:
            assert response.status == 200
        release.set()
    assert first.result() == 200


async def test_neither_keys_nor_text_reach_log_metrics_or_errors(client, upstream, start_proxy, log):
    """A planted key and a planted sentence are found nowhere but in what was forwarded."""
    proxy = await start_proxy(*SMALL, "defaults.on_exceeded=error")
    bodies = [
        CHAT | {"messages": [{"role": "user", "content": "PLANTED sentence"}]},
        {"model": "PLANTED", "messages": [{"role": "user", "content": "PLANTED " * 9000}]},
        {"model": "m", "messages": [{"role": "user", "content": "PLANTED"}, *make_session(60)["messages"][1:-1]]},
    ]
    for body in bodies:
        headers = {"Authorization": "Bearer PLANTED-key", "api-key": "PLANTED-too"}
        async with client.post(proxy.url + "/v1/chat/completions?PLANTED=1", json=body, headers=headers) as response:
            answer = await response.read()
        assert b"PLANTED" not in answer
        assert "PLANTED" not in str(dict(response.headers))
    async with client.get(proxy.url + "/metrics") as metrics:
        assert b"PLANTED" not in await metrics.read()
    assert "PLANTED" not in str(log.lines)
    assert len(log.lines) == 3
