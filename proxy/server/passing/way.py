"""Chooses the upstream of a request that no codec claims, by the model that it names.

Law: if no policy names another upstream, nothing of the body is read or held. A request without a model goes to the
main upstream.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from proxy.compaction.offload import INLINE_BYTES, LARGE_BODY_BYTES, BusyError
from proxy.config.schema import Config, UpstreamConfig
from proxy.exchange.admission import hold
from proxy.exchange.arrival import Arrival, tell_upstream
from proxy.exchange.journey import Journey
from proxy.exchange.route import Target, describe_target
from proxy.exchange.services import Services
from proxy.http.request_body import ReceivedBody, receive_beginning
from proxy.wire.routing import FORM_BYTES, find_deployment, find_listed, peek_model, read_form_model, read_model


@dataclass(frozen=True, slots=True)
class Way:
    """Where a request goes.

    received: what was read of the body; None if nothing was.
    """

    upstream: UpstreamConfig
    target: Target
    received: ReceivedBody | None = None


async def find_way(services: Services, journey: Journey) -> Way:
    """Choose the upstream; read as much of the body as that needs. Raises SlowRequestError and OverloadedError."""
    config, arrival, request = services.config, journey.arrival, journey.reply.request
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


def go_to(config: Config, arrival: Arrival, model: str = "", received: ReceivedBody | None = None) -> Way:
    """The way of a request for a model; to the main upstream if it names none."""
    name = config.policy_for(model).upstream if model else None
    upstream = config.upstream_for(name)
    matched = config.match_for(model) if model else None
    return Way(
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
