"""WebSockets, both ways, message by message."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from proxy.errors import UpstreamTimeoutError, UpstreamUnreachableError
from proxy.relay import Relayed
from proxy.upstream import drop_hop_by_hop

MAX_MESSAGE_BYTES = 0
"""No bound of ours: both ends have theirs."""
CLOSE_SECONDS = 10.0
_HANDSHAKE = frozenset(
    {
        "sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions", "sec-websocket-protocol",
        "content-length",
    }
)  # fmt: skip

Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


def is_upgrade(request: web.BaseRequest) -> bool:
    """Whether the client asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


async def relay_websocket(
    request: web.BaseRequest,
    session: aiohttp.ClientSession,
    url: URL,
    headers: CIMultiDict[str],
    relayed: Relayed,
    connect_seconds: float,
) -> web.StreamResponse:
    """Connect to the upstream, then accept the client, then pass messages until one side closes."""
    try:
        async with asyncio.timeout(connect_seconds):
            upstream = await _connect(request, session, url, headers)
    except aiohttp.WSServerHandshakeError as error:
        relayed.status = error.status
        refused = drop_hop_by_hop(list((error.headers or CIMultiDict()).items()))
        kept = [(name, value) for name, value in refused if name.lower() not in {"content-length", "content-encoding"}]
        return web.Response(status=error.status, headers=CIMultiDict(kept))
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
        relayed.status = 101
        code, reason = await _pump_both(client, upstream)
        await asyncio.gather(client.close(code=code, message=reason), upstream.close(code=code, message=reason))
    return client


async def _connect(
    request: web.BaseRequest, session: aiohttp.ClientSession, url: URL, headers: CIMultiDict[str]
) -> aiohttp.ClientWebSocketResponse:
    protocols = [item.strip() for item in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if item.strip()]
    for name in _HANDSHAKE:
        headers.popall(name, None)
    return await session.ws_connect(
        url, headers=headers, protocols=protocols, autoping=False, autoclose=False, max_msg_size=MAX_MESSAGE_BYTES
    )


async def _pump_both(client: Socket, upstream: Socket) -> tuple[int, bytes]:
    """Pass messages both ways until one side ends; with what code and reason it did."""
    async with asyncio.TaskGroup() as tasks:
        pumps = [tasks.create_task(_pump(client, upstream)), tasks.create_task(_pump(upstream, client))]
        ended, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
    return ended.pop().result()


async def _pump(source: Socket, target: Socket) -> tuple[int, bytes]:
    """Pass everything from one side to the other until it closes; with what code and reason it did."""
    while True:
        message = await source.receive()
        if message.type is aiohttp.WSMsgType.CLOSE:
            return message.data or NO_CODE, (message.extra or "").encode()
        send = _SENDERS.get(message.type)
        if send is None:
            return BROKEN, b""
        try:
            await send(target, message)
        except ConnectionError:
            return BROKEN, b""


NO_CODE = 1000
"""Sent on where a side closed without a code."""
BROKEN = 1011
"""Sent to the one side when the connection to the other broke."""

_SENDERS: dict[aiohttp.WSMsgType, Callable[[Socket, aiohttp.WSMessage], Awaitable[None]]] = {
    aiohttp.WSMsgType.TEXT: lambda target, message: target.send_str(message.data),
    aiohttp.WSMsgType.BINARY: lambda target, message: target.send_bytes(message.data),
    aiohttp.WSMsgType.PING: lambda target, message: target.ping(message.data),
    aiohttp.WSMsgType.PONG: lambda target, message: target.pong(message.data),
}
