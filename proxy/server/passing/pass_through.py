"""Streams a request that no codec claims to its upstream, and the answer back.

Law: nothing of the answer is held or changed. An answer of a known API says that the request was passed.
"""

from aiohttp import web

from proxy.exchange.attempt import Passed
from proxy.exchange.journey import Journey
from proxy.exchange.services import Services
from proxy.http.client import Body, target_url
from proxy.http.headers import OUTCOME_HEADER, Headers, request_headers
from proxy.http.relay import relay_answer
from proxy.http.websocket import is_upgrade, relay_websocket
from proxy.server.passing.models_list import list_models, wants_all
from proxy.server.passing.way import find_way, go_to

PASSED = "passed"


async def pass_through(services: Services, journey: Journey) -> web.StreamResponse:
    """Answer a request that no codec claims. Raises ProxyError."""
    arrival, reply = journey.arrival, journey.reply
    request = reply.request
    journey.attempt = Passed(PASSED)
    is_known = arrival.passed is not None and arrival.passed.is_inference
    added: Headers = [(OUTCOME_HEADER, PASSED)] if is_known else ()
    if wants_all(services.config, request):
        return await list_models(services, journey, added)
    to_open = is_upgrade(request)
    way = go_to(services.config, arrival) if to_open else await find_way(services, journey)
    upstream, journey.target = way.upstream, way.target
    url = target_url(upstream, arrival.target)
    headers = request_headers(arrival.end_to_end, upstream, identity=False, is_messages=arrival.is_messages)
    if to_open:
        journey.begin_attempt()
        return await relay_websocket(reply, services.client, url, headers, upstream, added)
    body: Body | None = services.uploads.read(request) if request.body_exists else None
    if way.received is not None:
        body = way.received.write(None, headers)
    journey.begin_attempt()
    async with services.client.send(request.method, url, headers, body, upstream) as answer:
        return await relay_answer(reply, answer, added)
