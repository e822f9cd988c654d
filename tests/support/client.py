"""Requests to a proxy, for tests of the server."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import orjson
from yarl import URL

from trimtab.proxy.server.app import Proxy

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
"""A request that no rule touches."""
SMALL = (
    "defaults.context_window=8000",
    "defaults.completion_reserve=1000",
    "defaults.max_tool_result_tokens=2000",
    "defaults.high_water=0.8",
    "defaults.low_water=0.4",
    "defaults.anchors=0.2",
)
"""Settings with a window that is several times smaller than a session from `support.sessions.make_session`."""


async def post(client: aiohttp.ClientSession, url: str, body: Any, **headers: str) -> tuple[Any, bytes]:
    """Send a body, or the JSON of a value, with a credential. Returns the response and its body."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-test"} | headers
    async with client.post(url, data=data, headers=headers) as response:
        return response, await response.read()


async def ask_raw(url: str, request: bytes) -> bytes:
    """Send the bytes of a request. Returns everything received until the connection ends."""
    address = URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    await writer.wait_closed()
    return answer


async def wait_until(is_true: Callable[[], bool]) -> None:
    """Let everything else run until something is true."""
    async with asyncio.timeout(30):
        while True:
            if is_true():
                return
            await asyncio.sleep(0)


async def settle(proxy: Proxy) -> None:
    """Wait until no summary is in progress."""
    while under_way := list(proxy.services.summaries._under_way.values()):
        await asyncio.wait(under_way)
        await asyncio.sleep(0)  # lets their callbacks remove them from the list
