"""Streams a request that no codec claims to the upstream of the model that it names, and the answer back.

Law: nothing of the answer is held or changed, and an answer of a known API says that the request was passed. If no
policy names another upstream, nothing of the body is read or held. A request without a model goes to the main upstream.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from trimtab.proxy.compaction.offload import INLINE_BYTES, LARGE_BODY_BYTES, BusyError
from trimtab.proxy.config.schema import Config, UpstreamConfig
from trimtab.proxy.exchange.admission import hold
from trimtab.proxy.exchange.arrival import Arrival, tell_upstream
from trimtab.proxy.exchange.attempt import Passed
from trimtab.proxy.exchange.route import NO_TARGET, Target, describe_target
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.exchange.tell import Finished, Note
from trimtab.proxy.http.client import Body, target_url
from trimtab.proxy.http.headers import OUTCOME_HEADER, Headers, request_headers
from trimtab.proxy.http.relay import Reply, relay_answer
from trimtab.proxy.http.request_body import ReceivedBody, receive_beginning
from trimtab.proxy.http.websocket import is_upgrade, relay_websocket
from trimtab.proxy.server.models_list import list_models, name_main, wants_all
from trimtab.proxy.wire.routing import FORM_BYTES, find_deployment, find_listed, peek_model, read_form_model, read_model


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a request goes.

    received: what was read of the body; None if nothing was.
    """

    upstream: UpstreamConfig
    target: Target
    received: ReceivedBody | None = None


async def find_destination(services: Services, arrival: Arrival, request: web.BaseRequest) -> Destination:
    """Choose the upstream; read as much of the body as that needs. Raises SlowRequestError and OverloadedError."""
    config = services.config
    if not config.routes_by_model:
        return go_to(config, arrival)
    if request.method == "GET":
        return go_to(config, arrival, find_listed(request.path))
    if request.method != "POST" or not request.body_exists:
        return go_to(config, arrival)
    content_type = request.headers.get("Content-Type", "")
    received: ReceivedBody | None = None
    model = ""
    if content_type.lower().startswith("multipart/form-data"):
        received = await receive_beginning(request, FORM_BYTES, services.uploads)
        model = read_form_model(received.beginning, content_type)
    elif _may_be_json(content_type):
        received = await hold(services, request, services.lane(arrival.tenant))
        model = await _read_model(services, arrival, received)
    return go_to(config, arrival, model or find_deployment(arrival.target), received)


def _may_be_json(content_type: str) -> bool:
    """Whether a body of this type may be JSON; clients that name no type send it as a form or as text."""
    media_type = content_type.partition(";")[0].strip().lower()
    return "json" in media_type or media_type in {"", "text/plain", "application/x-www-form-urlencoded"}


def go_to(config: Config, arrival: Arrival, model: str = "", received: ReceivedBody | None = None) -> Destination:
    """The way of a request for a model; to the main upstream if it names none."""
    name = config.policy_for(model).upstream if model else None
    upstream = config.upstream_for(name)
    matched = config.match_for(model) if model else None
    return Destination(
        upstream, describe_target(config, arrival, model, matched, tell_upstream(name, upstream.base_url)), received
    )


async def _read_model(services: Services, arrival: Arrival, received: ReceivedBody) -> str:
    body = received.json
    if body is not None:
        size_bytes = INLINE_BYTES + 1 if len(body) > LARGE_BODY_BYTES else 0
        with suppress(BusyError):
            work = partial(read_model, body)
            return await services.workers.run(services.lane(arrival.tenant), work, size_bytes=size_bytes)
    return peek_model(received.beginning)


PASSED = "passed"
_PASSED = Passed(PASSED)


async def pass_through(services: Services, arrival: Arrival, reply: Reply, note: Note) -> web.StreamResponse:
    request, target, sent_at = reply.request, NO_TARGET, 0.0
    is_known = arrival.passed is not None and arrival.passed.is_inference
    added: Headers = [(OUTCOME_HEADER, PASSED)] if is_known else ()
    try:
        if wants_all(services.config, request):
            target, sent_at = name_main(services.config), time.monotonic()
            return await list_models(services, arrival, reply, added)
        to_open = is_upgrade(request)
        goal = go_to(services.config, arrival) if to_open else await find_destination(services, arrival, request)
        upstream, target = goal.upstream, goal.target
        url = target_url(upstream, arrival.target)
        headers = request_headers(arrival.end_to_end, upstream, identity=False, is_messages=arrival.is_messages)
        if to_open:
            sent_at = time.monotonic()
            return await relay_websocket(reply, services.client, url, headers, upstream, added)
        body: Body | None = services.uploads.read(request) if request.body_exists else None
        if goal.received is not None:
            body = goal.received.write(None, headers)
        sent_at = time.monotonic()
        async with services.client.send(request.method, url, headers, body, upstream) as answer:
            return await relay_answer(reply, answer, added)
    finally:
        note(Finished(arrival, reply, target, _PASSED, sent_at=sent_at))
