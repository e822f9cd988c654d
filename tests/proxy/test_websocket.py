"""WebSockets through a running proxy."""

import asyncio

import aiohttp
import pytest
from aiohttp import web


async def test_websocket_passes_both_ways(upstream, start_proxy):
    """Text, bytes, subprotocol and close code cross; the credential goes along."""

    async def echo(_recorded, request):
        socket = web.WebSocketResponse(protocols=("realtime",))
        await socket.prepare(request)
        async for message in socket:
            if message.data == "bye":
                await socket.close(code=4001)
            elif message.type is aiohttp.WSMsgType.TEXT:
                await socket.send_str(message.data + "!")
            else:
                await socket.send_bytes(message.data + b"!")
        return socket

    upstream.answer = echo
    proxy = await start_proxy()
    async with aiohttp.ClientSession() as session:
        url = proxy.url + "/v1/realtime?model=x"
        async with session.ws_connect(url, protocols=("realtime",), headers={"Authorization": "Bearer k"}) as socket:
            assert socket.protocol == "realtime"
            await socket.send_str("hi")
            assert await socket.receive_str(timeout=5) == "hi!"
            await socket.send_bytes(b"\x00")
            assert await socket.receive_bytes(timeout=5) == b"\x00!"
            await socket.send_str("bye")
            assert (await socket.receive(timeout=5)).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == 4001
    assert upstream.requests[0].path == "/v1/realtime?model=x"
    assert upstream.requests[0].header("authorization") == ["Bearer k"]


async def test_refused_websocket_is_refused(upstream, start_proxy):
    """A status other than 101 reaches the client."""

    async def refuse(_recorded, _request):
        return web.Response(status=403)

    upstream.answer = refuse
    proxy = await start_proxy()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(proxy.url + "/v1/realtime")
    assert caught.value.status == 403


async def test_the_clients_close_code_crosses_and_comes_back(upstream, start_proxy, log):
    """Code and reason reach the upstream, the client gets its own back, and the session counts as 101."""
    closed = asyncio.Event()
    seen = []

    async def listen(_recorded, request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        message = await socket.receive()
        seen.append((message.type, message.data))
        closed.set()
        return socket

    upstream.answer = listen
    proxy = await start_proxy()
    async with aiohttp.ClientSession() as session, session.ws_connect(proxy.url + "/v1/realtime") as socket:
        await socket.close(code=4001, message=b"bye")
        assert socket.close_code == 4001
        await asyncio.wait_for(closed.wait(), 5)
    async with asyncio.timeout(5):
        await proxy.services.lifecycle.idle.wait()
    assert (log.lines[-1]["status"], log.lines[-1]["outcome"]) == (101, "passed")
