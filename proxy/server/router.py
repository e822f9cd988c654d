"""Every request comes in here.

Law: our own pages are answered, chat completions go to exchange/serve.py, and whatever no codec claims streams through.
"""

import asyncio
import time
from contextlib import suppress

from aiohttp import HttpVersion11, web

from proxy.exchange.loggable import tell_name, tell_path, tell_upstream
from proxy.exchange.record import Exchange
from proxy.exchange.serve import serve_chat
from proxy.exchange.services import Services
from proxy.http.client import SWITCHING_PROTOCOLS, Body, target_url
from proxy.http.errors import MethodNotAllowedError, OverloadedError, ProxyError
from proxy.http.framing import check_framing
from proxy.http.headers import read_headers, request_headers
from proxy.http.relay import relay_answer
from proxy.http.websocket import is_upgrade, relay_websocket
from proxy.server.access import admit_client
from proxy.server.admin.pages import answer_error, answer_page, is_own

CHAT_PATHS = frozenset({"/v1/chat/completions", "/chat/completions"})

CHAT = "chat"


async def handle(services: Services, request: web.BaseRequest) -> web.StreamResponse:
    """Answer one request, whatever it is."""
    if is_own(services.config, request.path):
        return _answer_page(services, request, of_pages=False)
    exchange = _begin_exchange(services, request)
    lifecycle = services.lifecycle
    lifecycle.enter()
    services.recorder.metrics.in_flight.set(lifecycle.in_flight)
    try:
        check_framing(request)
        admit_client(services.config, read_headers(request.raw_headers))
        if lifecycle.in_flight > services.config.limits.max_concurrent_requests:
            message = "too many requests at once (limits.max_concurrent_requests); try again"
            raise OverloadedError(message)
        if request.method == "CONNECT":
            message = "this proxy opens no tunnels; send the request itself"
            raise MethodNotAllowedError(message)
        await _invite_body(request)
        if exchange.endpoint == CHAT:
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


async def handle_pages(services: Services, request: web.BaseRequest) -> web.StreamResponse:
    """Answer one request at `metrics_listen`, where there are our own pages and nothing else."""
    return _answer_page(services, request, of_pages=True)


def _begin_exchange(services: Services, request: web.BaseRequest) -> Exchange:
    headers = read_headers(request.raw_headers)
    is_chat = request.method == "POST" and request.path in CHAT_PATHS
    exchange = Exchange(
        endpoint=CHAT if is_chat else "other",
        method=tell_name(request.method, headers),
        path=tell_path(request.raw_path, headers),
    )
    services.recorder.record_arrival(exchange)
    return exchange


def _answer_page(services: Services, request: web.BaseRequest, *, of_pages: bool) -> web.StreamResponse:
    headers = read_headers(request.raw_headers)
    answer = answer_page(services, request.path, headers, of_pages=of_pages)
    services.recorder.record_page(tell_path(request.raw_path, headers), answer.status)
    return answer


async def _invite_body(request: web.BaseRequest) -> None:
    """Tell a client that waits for leave to send its body (curl does, for a large one) to go on."""
    asks = request.version >= HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue"
    if asks and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


async def _answer_error(error: ProxyError, exchange: Exchange) -> web.StreamResponse:
    if exchange.stream is not None:
        with suppress(ConnectionError):  # the client has left
            await exchange.stream.write_eof(b"data: " + error.body() + b"\n\n")
        return exchange.stream
    answer = answer_error(error)
    answer.headers.extend(exchange.response_headers())
    return answer


async def _pass_through(services: Services, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
    """Stream a request that no codec claims to the main upstream, and its answer back."""
    upstream = services.config.upstream
    url = target_url(upstream, request.raw_path)
    headers = request_headers(read_headers(request.raw_headers), upstream, identity=False)
    exchange.outcome, exchange.upstream = "passed", tell_upstream(None, upstream.base_url)
    if is_upgrade(request):
        exchange.sent_at = time.monotonic()
        return await relay_websocket(request, services.client, url, headers, upstream, exchange.relayed)
    body: Body | None = services.uploads.read(request) if request.body_exists else None
    exchange.sent_at = time.monotonic()
    async with services.client.send(request.method, url, headers, body, upstream) as answer:
        return await relay_answer(request, answer, [], None, exchange.relayed)
