"""Every request comes in here.

Law: our own pages are answered, chat completions go to chat.py, and whatever no codec claims streams through.
"""

import asyncio
import time
from contextlib import suppress

from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from proxy.chat import serve_chat
from proxy.errors import MethodNotAllowedError, OverloadedError, ProxyError, SlowRequestError
from proxy.exchange import Exchange
from proxy.known import write_models
from proxy.relay import relay_answer
from proxy.services import Services
from proxy.upstream import Body, read_headers, request_headers, target_url
from proxy.websocket import SWITCHING_PROTOCOLS, is_upgrade, relay_websocket

CHAT_PATHS = frozenset({"/v1/chat/completions", "/chat/completions"})
RETRY_AFTER_SECONDS = 1


async def handle(services: Services, request: web.BaseRequest) -> web.StreamResponse:
    """Answer one request, whatever it is."""
    path = request.path
    if path == services.config.metrics_path:
        body = services.recorder.metrics.render()
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
    if path == "/trimtab" or path.startswith("/trimtab/"):
        return _answer_own(services, path)
    is_chat = request.method == "POST" and path in CHAT_PATHS
    exchange = Exchange(endpoint="chat" if is_chat else "other", method=request.method)
    lifecycle = services.lifecycle
    lifecycle.enter()
    services.recorder.metrics.in_flight.set(lifecycle.in_flight)
    try:
        if lifecycle.in_flight > services.config.limits.max_concurrent_requests:
            message = "too many requests at once (limits.max_concurrent_requests); try again"
            raise OverloadedError(message)
        if request.method == "CONNECT":
            message = "this proxy opens no tunnels; send the request itself"
            raise MethodNotAllowedError(message)
        await _invite_body(request)
        if is_chat:
            return await serve_chat(services, request, exchange)
        return await _pass_through(services, request, exchange)
    except ProxyError as error:
        exchange.refuse(error)
        return await _answer_error(error, exchange)
    except asyncio.CancelledError:
        # A client that has its answer may be gone at once; a WebSocket's, before the upstream has answered.
        relayed = exchange.relayed
        relayed.client_left = relayed.status != SWITCHING_PROTOCOLS and not relayed.last_byte_at
        raise
    finally:
        services.uploads.release(request)
        lifecycle.leave()
        services.recorder.metrics.in_flight.set(lifecycle.in_flight)
        services.recorder.record(exchange)


async def _invite_body(request: web.BaseRequest) -> None:
    """Tell a client that waits for leave to send its body (curl does, for a large one) to go on."""
    asks = request.version >= HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue"
    if asks and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def _answer_own(services: Services, path: str) -> web.Response:
    if path == "/trimtab/health":
        return web.Response(body=b'{"status":"ok"}', content_type="application/json")
    if path == "/trimtab/ready":
        ready = services.lifecycle.ready
        body = b'{"status":"ready"}' if ready else b'{"status":"draining"}'
        return web.Response(body=body, status=200 if ready else 503, content_type="application/json")
    if path == "/trimtab/api/models":
        return web.Response(body=write_models(services), content_type="application/json")
    body = b'{"error":{"message":"no such page","type":"trimtab_error","param":null,"code":"not_found"}}'
    return web.Response(body=body, status=404, content_type="application/json")


async def _answer_error(error: ProxyError, exchange: Exchange) -> web.StreamResponse:
    if exchange.stream is not None:
        with suppress(ConnectionError):  # the client has left
            await exchange.stream.write_eof(b"data: " + error.body() + b"\n\n")
        return exchange.stream
    headers = CIMultiDict([("Content-Type", "application/json"), *exchange.response_headers()])
    if isinstance(error, OverloadedError):
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    response = web.Response(body=error.body(), status=error.status, headers=headers)
    if isinstance(error, SlowRequestError | OverloadedError):
        response.force_close()  # the rest of the request is not worth reading
    return response


async def _pass_through(services: Services, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
    """Stream a request that no codec claims to the main upstream, and its answer back."""
    upstream = services.config.upstream
    url = target_url(upstream, request.raw_path)
    headers = request_headers(read_headers(request.raw_headers), upstream, identity=False)
    exchange.outcome = "passed"
    if is_upgrade(request):
        exchange.sent_at = time.monotonic()
        return await relay_websocket(request, services.client, url, headers, upstream, exchange.relayed)
    body: Body | None = services.uploads.read(request) if request.body_exists else None
    exchange.sent_at = time.monotonic()
    async with services.client.send(request.method, url, headers, body, upstream) as answer:
        return await relay_answer(request, answer, [], None, exchange.relayed)
