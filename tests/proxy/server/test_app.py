"""Wiring: what is missing at the start, and how the proxy ends."""

import asyncio
from contextlib import suppress

import pytest
from aiohttp import web
from upstreams.recording import Recorded, event

from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.values import split_address
from trimtab.proxy.server.app import run_proxy


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_an_answer_that_the_drain_cuts_ends_in_a_reset(version, upstream, log, compactors) -> None:
    """A clean end would look like the end of the answer to an HTTP/1.0 client."""

    async def begin(_recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("half"))
        await asyncio.Event().wait()
        return response

    upstream.answer = begin
    settings = (
        "listen=127.0.0.1:0",
        f"upstream.base_url={upstream.url}",
        "store=memory",
        "limits.drain_seconds=0.1",
    )
    body = b'{"messages":[{"role":"user","content":"hi"}],"stream":true}'
    head = b"POST /v1/chat/completions HTTP/%s\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (version, len(body))
    async with run_proxy(load_config(settings=settings, environment={}), log, compactors) as proxy:
        reader, writer = await asyncio.open_connection(*split_address(proxy.url.removeprefix("http://")))
        writer.write(head + body)
        await reader.readuntil(b"half")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
