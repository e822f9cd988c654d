"""WebSockets: the handshake is forwarded like any request, and then bytes pass both ways.

Law: frames are not read. So subprotocols, extensions, pings, fragments and close codes pass unchanged between client
and upstream. If the upstream refuses the handshake, its response is passed on with its body.
"""

import asyncio
from contextlib import AsyncExitStack

import aiohttp
from aiohttp import web
from aiohttp.http import StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD
from multidict import CIMultiDict
from yarl import URL

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import SWITCHING_PROTOCOLS, UpstreamClient
from trimtab.proxy.http.errors import UpstreamTimeoutError, UpstreamUnreachableError
from trimtab.proxy.http.headers import Headers
from trimtab.proxy.http.relay import STALLED_SECONDS, Reply, make_response, relay_answer
from trimtab.proxy.http.unreachable import name_host

BUFFER_BYTES = 64 * 1024  # In each direction; reading stops at twice this. Chosen: as in client.py.
_UPGRADE = (("Connection", "Upgrade"), ("Upgrade", "websocket"))


def is_upgrade(request: web.BaseRequest) -> bool:
    """Whether the client asks for a WebSocket; not with a body, for which the upstream would take the next request."""
    wants = request.method == "GET" and request.headers.get("Upgrade", "").lower() == "websocket"
    return wants and not request.body_exists


async def relay_websocket(
    reply: Reply,
    client: UpstreamClient,
    url: URL,
    headers: CIMultiDict[str],
    upstream: UpstreamConfig,
    added: Headers = (),
) -> web.StreamResponse:
    """Forward the handshake, then pass bytes both ways until one end closes. The answer has the headers `added`.

    Raises UpstreamUnreachableError, or UpstreamTimeoutError if the handshake takes longer than
    `upstream.connect_timeout_seconds`.
    """
    headers.extend(_UPGRADE)
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(upstream.connect_timeout_seconds):
                answer = await stack.enter_async_context(client.send("GET", url, headers, None, upstream))
        except TimeoutError as error:
            through = f" {upstream.route}" if upstream.route.proxy is not None else ""
            raise UpstreamTimeoutError(
                f"{name_host(url)} did not accept the WebSocket in time{through}; see upstream.connect_timeout_seconds"
            ) from error
        if answer.status != SWITCHING_PROTOCOLS:
            return await relay_answer(reply, answer, added)
        try:
            return await _open_tunnel(reply, answer, added)
        finally:
            answer.close()


async def _open_tunnel(reply: Reply, answer: aiohttp.ClientResponse, added: Headers) -> web.StreamResponse:
    upstream = answer.connection.protocol if answer.connection is not None else None
    if upstream is None:
        raise UpstreamUnreachableError("the upstream closed the WebSocket at once")
    upstream.read_timeout = None  # a WebSocket may be silent for any time
    response = make_response(answer, (*_UPGRADE, *added))
    response.force_close()
    await reply.begin(response)
    reply.status = answer.status
    loop, client = asyncio.get_running_loop(), reply.request.protocol
    from_client = _Inlet(aiohttp.StreamReader(client, BUFFER_BYTES, loop=loop))
    from_upstream = _Inlet(aiohttp.StreamReader(upstream, BUFFER_BYTES, loop=loop))
    client.set_parser(from_client)  # type: ignore[arg-type] # aiohttp calls only the two methods of an inlet
    upstream.set_parser(from_upstream, EMPTY_PAYLOAD)  # no body that a lost connection would mark as broken
    ended = await _pump_both(
        (from_client.stream, StreamWriter(upstream, loop)),
        (from_upstream.stream, StreamWriter(client, loop)),
    )
    if not ended or isinstance(upstream.exception(), OSError):  # some bytes were lost, so both ends must notice
        upstream.abort()
        reply.reset()
    return response


class _Inlet:
    """Takes the place of aiohttp's WebSocket parser, and puts the bytes into a stream unread."""

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self.stream = stream

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take bytes. The result tells aiohttp that the parser has not finished and leaves nothing over."""
        self.stream.feed_data(data)
        return False, b""

    def feed_eof(self) -> None:
        self.stream.feed_eof()


_Pipe = tuple[aiohttp.StreamReader, StreamWriter]


async def _pump_both(*pipes: _Pipe) -> bool:
    """Pass bytes both ways until one side ends and its last bytes were passed on. False if they were not taken."""
    # One side's end ends both: there is no half-closed WebSocket. Source: RFC 6455 section 7.1.1.
    async with asyncio.TaskGroup() as tasks:
        pumps = [tasks.create_task(_pump(*pipe)) for pipe in pipes]
        ended, running = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in running:
            pump.cancel()
    return all(pump.result() for pump in ended)


async def _pump(source: aiohttp.StreamReader, target: StreamWriter) -> bool:
    """Pass bytes on until the source ends or the target is gone. False if the target takes nothing any more."""
    try:
        async for piece in source.iter_any():
            async with asyncio.timeout(STALLED_SECONDS):
                await target.write(piece)
    except TimeoutError:
        return False
    except (ConnectionError, aiohttp.ClientError):
        pass
    return True
