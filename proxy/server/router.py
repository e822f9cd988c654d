"""The entry of every request.

Law: our own pages are answered here. Requests that a codec claims go to exchange/serve.py, those to compact for a
caller to exchange/for_caller.py. Everything else streams through. A request keeps the services that it began with, even
if the configuration is reloaded.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from math import inf

import msgspec
from aiohttp import HttpVersion11, web
from msgspec import structs

from trimtab.proxy.account.budgets import Budgets
from trimtab.proxy.config.schema import Config
from trimtab.proxy.exchange import for_caller
from trimtab.proxy.exchange.arrival import Arrival, find_head, find_secrets, read_arrival, tell_path
from trimtab.proxy.exchange.for_caller import ENDPOINT
from trimtab.proxy.exchange.serve import serve
from trimtab.proxy.exchange.services import Services, Serving
from trimtab.proxy.exchange.tell import Finished, Note, tell, write_headers
from trimtab.proxy.http.aiohttp_fixes.server import PlainResponse, loses_what_follows
from trimtab.proxy.http.client import SWITCHING_PROTOCOLS
from trimtab.proxy.http.credentials import find_shown
from trimtab.proxy.http.errors import (
    ClientBudgetError,
    ClientLimitError,
    MethodNotAllowedError,
    OverloadedError,
    ProxyError,
)
from trimtab.proxy.http.headers import Headers, read_headers
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.http.request_body import check_framing
from trimtab.proxy.server.access import admit_client, admit_site
from trimtab.proxy.server.admin.pages import (
    API,
    OPEN_PAGES,
    ROOT,
    UNBOUNDED_PAGES,
    answer_error,
    answer_page,
    answer_page_error,
    is_own,
)
from trimtab.proxy.server.admin.sending import send_page, send_whole
from trimtab.proxy.server.pass_through import pass_through
from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.dialects import DEFAULT, find_codec, find_dialect

Answer = Callable[[Services, Arrival, Reply, Note], Awaitable[tuple[bytes, Headers]]]
"""Makes the answer: JSON, and headers beside it. Raises ProxyError."""


def _find_answer(config: Config, method: str, path: str) -> Answer | None:
    # Requests to these addresses of ours are served as those of models are: with the same keys, bounds and fairness.
    if path == for_caller.PATH:
        allowed, answer = "POST", for_caller.compact_for_caller
    elif config.compaction.compress and path == for_caller.COMPRESS:
        allowed, answer = "POST", for_caller.compress_messages
    elif config.compaction.compress and path.startswith(for_caller.RETRIEVE):
        allowed, answer = "GET", for_caller.retrieve_text
    else:
        return None
    return answer if method == allowed else partial(_refuse_method, allowed)


async def _refuse_method(allowed: str, _: Services, __: Arrival, reply: Reply, ___: Note) -> tuple[bytes, Headers]:
    raise MethodNotAllowedError(f"{reply.request.path} takes {allowed}", allowed)


async def _answer_caller(
    services: Services, arrival: Arrival, reply: Reply, note: Note, answer: Answer
) -> web.StreamResponse:
    body, headers = await answer(services, arrival, reply, note)
    return await send_whole(reply, web.Response(content_type="application/json", headers=headers), body)


Handler = Callable[[Services, web.BaseRequest], Awaitable[web.StreamResponse]]


class Current(msgspec.Struct):
    """The services for new requests; a reload replaces them."""

    services: Services

    def serve_by(self, handler: Handler) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            response = await handler(self.services, request)
            # A PlainResponse has seen to that itself.
            if not isinstance(response, PlainResponse) and loses_what_follows(request):
                response.force_close()
            return response

        return answer


async def handle(services: Services, request: web.BaseRequest) -> web.StreamResponse:
    config, path, codec, own = services.config, request.path, None, None
    head = find_head(request, services.tenancy)
    if head is not None and head.admitted_by is config:
        codec = head.codec  # it was for none of our own pages
    if codec is None and request.method == "POST" and not path.startswith(f"{ROOT}/"):
        codec = find_codec(services.codecs, path, config.compaction.paths)
    if codec is None and (config.compaction.compress or is_own(config, path)):
        own = _find_answer(config, request.method, path)
        if own is None and is_own(config, path):
            return await _answer_page(services, request, of_pages=False)
    arrival, reply = read_arrival(request, codec, services.tenancy, head), Reply(request)
    if own is not None:
        arrival = structs.replace(arrival, endpoint=ENDPOINT.label, passed=ENDPOINT)
    recorder, client = services.recorder, arrival.tenant.client_name
    if recorder.tells_arrivals:
        # Its own log line may come much later.
        recorder.log.debug("request_begun", request_id=arrival.request_id, method=arrival.method, path=arrival.path)
    with Serving(services.lifecycle, reply, client):
        return await _serve(services, arrival, reply, codec, own)


async def _serve(
    services: Services, arrival: Arrival, reply: Reply, codec: Codec | None, own: Answer | None
) -> web.StreamResponse:
    """Answer a request that is not for our own pages. It is told in any case."""
    finished, refusal, has_failed = Finished(arrival, reply), None, True

    def note(found: Finished) -> None:
        nonlocal finished
        finished = found

    try:
        arrival = _admit(services, reply.request, arrival)
        await _invite_body(reply.request)
        if codec is not None:
            serving = serve(services, arrival, reply, codec, note)
        elif own is not None:
            serving = _answer_caller(services, arrival, reply, note, own)
        else:
            serving = pass_through(services, arrival, reply, note)
        answer = await serving
    except ProxyError as error:
        # The traceback holds the request body, which would stay in memory until the next garbage collection.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        refusal, has_failed = error, False
        return await _answer_error(finished, error, codec, find_dialect(services.codecs, arrival.endpoint))
    except (asyncio.CancelledError, ConnectionError) as error:
        has_failed = False
        # A client may leave once it has its answer; the client of a WebSocket, before the upstream has answered.
        reply.client_left = reply.status != SWITCHING_PROTOCOLS and not reply.last_byte_at
        if isinstance(error, ConnectionError):
            return reply.response or web.Response()  # nobody reads it; raised, it would be logged as a fault
        raise
    else:
        has_failed = False
        return answer
    finally:
        services.uploads.release(reply.request)
        tell(services, finished, refusal, has_failed=has_failed)


async def handle_pages(services: Services, request: web.BaseRequest) -> web.StreamResponse:
    return await _answer_page(services, request, of_pages=True)


async def _answer_page(services: Services, request: web.BaseRequest, *, of_pages: bool) -> web.StreamResponse:
    services.recorder.drain()  # what a page shows has all that has ended
    headers, path = read_headers(request.raw_headers), request.path
    shown = find_shown(headers, request.raw_path)
    make = partial(answer_page, services, request, headers, of_pages=of_pages)
    try:
        admit_site(services.config, request, of_pages=of_pages, is_page=path not in OPEN_PAGES)
        if path in UNBOUNDED_PAGES:
            answer = await make()
        else:
            reader = services.lane(services.tenancy.identify(headers, request.raw_path, shown)).name
            answer = await send_page(services, request, reader, make, is_shared=not path.startswith(API))
    except ProxyError as error:
        answer = answer_page_error(error)
    services.recorder.log.debug("page", path=tell_path(request.raw_path, find_secrets(shown)), status=answer.status)
    return answer


def _admit(services: Services, request: web.BaseRequest, arrival: Arrival) -> Arrival:
    """Admit a request by its head alone; return it, with what its answer says of a budget. Raises ProxyError."""
    check_framing(request)
    if request.method == "CONNECT":
        raise MethodNotAllowedError("this proxy does not open tunnels; send the request itself")
    if request.method == "TRACE" and services.config.upstream.shown == "key":
        raise MethodNotAllowedError("TRACE would make the upstream reveal this proxy's own key; use another method")
    head, config = arrival.head, services.config
    if head.admitted_by is not config:  # else the same head came before, on this connection
        admit_site(config, request, of_pages=False)
        head.admitted_by = config
    client = arrival.tenant.client_name
    key = None if config.client_keys is None else admit_client(config, arrival.headers)
    if key is not None:
        services.recorder.record_key(client, key)
    if client and services.lifecycle.count_of(client) > services.config.clients.limits.get(client, inf):
        message = "too many requests of this client at once (its max_concurrent_requests in client_keys); try again"
        raise ClientLimitError(message)
    if services.lifecycle.in_flight > services.config.limits.max_concurrent_requests:
        raise OverloadedError("too many requests at once (limits.max_concurrent_requests); try again")
    budgets = services.budgets
    return _apply_budget(budgets, arrival) if budgets is not None and budgets.budgets else arrival


def _apply_budget(budgets: Budgets, arrival: Arrival) -> Arrival:
    spent = budgets.check(arrival.tenant.client_name)
    if spent is None:
        return arrival
    if spent.refuses:
        raise ClientBudgetError(spent.message, spent.seconds)
    return structs.replace(arrival, budget=spent.header)


async def _invite_body(request: web.BaseRequest) -> None:
    """Answer `Expect: 100-continue`, which curl sends before a large body."""
    if "Expect" not in request.headers:
        return
    asks = request.version >= HttpVersion11 and request.headers["Expect"].lower() == "100-continue"
    if asks and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


async def _answer_error(
    finished: Finished, error: ProxyError, codec: Codec | None, dialect: Codec | None
) -> web.StreamResponse:
    """Send our own error, or an event of a begun stream. dialect: of the path, even if no codec claims it."""
    stream = finished.reply.response
    if stream is not None and codec is not None and finished.reply.is_stream:
        with suppress(ConnectionError):  # the client has left
            await stream.write_eof(finished.reply.adopt(codec.write_error(error.text(), as_event=True)))
        return stream
    if stream is not None:  # a second head would be read as the answer to the next request
        finished.reply.reset()
        return stream
    answer = answer_error(error, codec or dialect or DEFAULT)
    answer.headers.extend(write_headers(finished.arrival, finished.attempt, finished.sent_at, error))
    return answer
