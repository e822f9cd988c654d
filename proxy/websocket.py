"""WebSockets, both ways, message by message."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from proxy.errors import UpstreamTimeoutError, UpstreamUnreachableError

MAX_MESSAGE_BYTES = 0
"""No bound of ours: both ends have theirs."""
CLOSE_SECONDS = 10.0
_HANDSHAKE = frozenset(
    {"sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions", "sec-websocket-protocol"}
)

Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


def is_upgrade(request: web.BaseRequest) -> bool:
    """Whether the client asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


async def relay_websocket(
    request: web.BaseRequest,
    session: aiohttp.ClientSession,
    url: URL,
    headers: CIMultiDict[str],
    connect_seconds: float,
) -> web.StreamResponse:
    """Connect to the upstream, then accept the client, then pass messages until one side closes."""
    protocols = [item.strip() for item in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if item.strip()]
    for name in _HANDSHAKE:
        headers.popall(name, None)
    try:
        async with asyncio.timeout(connect_seconds):
            upstream = await session.ws_connect(
                url,
                headers=headers,
                protocols=protocols,
                autoping=False,
                autoclose=False,
                max_msg_size=MAX_MESSAGE_BYTES,
            )
    except aiohttp.WSServerHandshakeError as error:
        return web.Response(status=error.status)
    except TimeoutError as error:
        message = f"{url.host}:{url.port} did not accept the WebSocket in time"
        raise UpstreamTimeoutError(message) from error
    except (aiohttp.ClientError, OSError) as error:
        message = f"{url.host}:{url.port} could not be reached ({type(error).__name__}); check upstream.base_url"
        raise UpstreamUnreachableError(message) from error
    async with upstream:
        chosen = [upstream.protocol] if upstream.protocol else []
        client = web.WebSocketResponse(
            protocols=chosen, autoping=False, autoclose=False, max_msg_size=MAX_MESSAGE_BYTES, timeout=CLOSE_SECONDS
        )
        await client.prepare(request)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_pump(client, upstream))
            tasks.create_task(_pump(upstream, client))
    return client


async def _pump(source: Socket, target: Socket) -> None:
    """Pass everything from one side to the other, its closing included."""
    async for message in source:
        send = _SENDERS.get(message.type)
        if send is not None:
            await send(target, message)
    if not target.closed:
        code = source.close_code
        await target.close(code=code if code is not None and code != ABNORMAL else 1011)


ABNORMAL = 1006
"""The code of a connection that broke; it is never sent."""

_SENDERS: dict[aiohttp.WSMsgType, Callable[[Socket, aiohttp.WSMessage], Awaitable[None]]] = {
    aiohttp.WSMsgType.TEXT: lambda target, message: target.send_str(message.data),
    aiohttp.WSMsgType.BINARY: lambda target, message: target.send_bytes(message.data),
    aiohttp.WSMsgType.PING: lambda target, message: target.ping(message.data),
    aiohttp.WSMsgType.PONG: lambda target, message: target.pong(message.data),
}
