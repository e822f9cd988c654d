"""A request that a codec claims, from its bytes to the end of its answer.

Law: the client sees one answer. The upstream is asked a second time only if it refused the first attempt unread.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import aiohttp
from aiohttp import web

from proxy.compaction.offload import LARGE_BODY_BYTES, run_bounded
from proxy.exchange.call import Route, choose_route
from proxy.exchange.compact import Attempt, compact
from proxy.exchange.early_answer import Opening, read_opening
from proxy.exchange.journey import Journey
from proxy.exchange.observe import count_answer, observe
from proxy.exchange.record import Phases, fail_open
from proxy.exchange.recover import learn_from_retry, recover
from proxy.exchange.services import Services
from proxy.exchange.summary import write_ahead
from proxy.http.client import target_url
from proxy.http.headers import request_headers
from proxy.http.relay import relay_answer, replace_answer
from proxy.http.request_body import ReceivedBody, receive_body
from proxy.wire.codec import PROMPT_TOO_LONG, Codec, ErrorText, Request, UndecodableError
from proxy.wire.overflow.classify import Overflow
from proxy.wire.overflow.wordings import Kind

REWRITTEN_KINDS = frozenset({Kind.PROMPT, Kind.SIZE, Kind.GENERATION})
"""For the other kinds, `context_length_exceeded` would make the client compact for nothing."""
MAX_ATTEMPTS = 2


async def serve(services: Services, journey: Journey, codec: Codec) -> web.StreamResponse:
    """Serve the request, compacted if that is called for. Raises ProxyError."""
    arrival, reply, limits = journey.arrival, journey.reply, services.config.limits
    received = await receive_body(reply.request, limits.max_body_bytes, services.uploads)
    request = None if received.json is None else await _read(codec, received.json)
    # A body that is not decoded still says by its model whose upstream it is for, and whose credential it carries.
    model = codec.peek_model(received.beginning) if request is None else request.model
    route = choose_route(services.config, arrival, reply.request.headers, model)
    journey.target = route.target
    if request is None:
        journey.attempt = Attempt("too_large" if received.is_too_large else "undecodable")
    else:
        journey.attempt = await compact(services, arrival, route, request, reply)
    if journey.attempt.refusal is not None:
        raise journey.attempt.refusal
    refused: Overflow | None = None
    while True:
        journey.begin_attempt()
        async with _send(services, journey, route, received) as answer:
            opening = journey.opening = await _open(journey, codec, answer)
            if refused is not None:
                await learn_from_retry(services, journey.attempt, refused, opening)
            shorter = await _shorten(services, journey, opening)
            if shorter is None:
                return await _finish(services, journey, route, codec, answer)
        journey.attempt, refused = shorter, opening.overflow


async def _read(codec: Codec, body: bytes) -> Request | None:
    """The request split into its elements; None if it is none of this dialect, and the upstream shall judge."""
    try:
        return await run_bounded(partial(codec.read, body), in_thread=len(body) > LARGE_BODY_BYTES)
    except UndecodableError:
        return None


@asynccontextmanager
async def _send(
    services: Services, journey: Journey, route: Route, received: ReceivedBody
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The upstream's answer, its body not read yet. Raises UpstreamUnreachableError, UpstreamTimeoutError."""
    upstream, arrival = route.upstream, journey.arrival
    url = target_url(upstream, arrival.target, is_api=True)
    headers = request_headers(arrival.end_to_end, upstream, identity=True)
    outgoing = received.write(journey.attempt.body, headers)
    async with services.client.send("POST", url, headers, outgoing, upstream) as answer:
        yield answer


async def _open(journey: Journey, codec: Codec, answer: aiohttp.ClientResponse) -> Opening:
    """The beginning of the answer; nothing is read of it if there could be no second attempt."""
    if journey.attempt.body is None:
        return Opening(answer.status)
    return await read_opening(journey.reply, answer, codec, journey.write_headers())


async def _shorten(services: Services, journey: Journey, opening: Opening) -> Attempt | None:
    """The next attempt; None if this answer is the client's."""
    if opening.overflow is None or journey.attempts == MAX_ATTEMPTS:
        return None
    return await recover(services, journey.attempt, opening.overflow, journey.reply)


async def _finish(
    services: Services, journey: Journey, route: Route, codec: Codec, answer: aiohttp.ClientResponse
) -> web.StreamResponse:
    """Pass the answer on, and learn from it."""
    attempt, opening, request_id = journey.attempt, journey.opening, journey.arrival.request_id
    is_answered = answer.status == 200 and opening is not None and opening.overflow is None
    call, chosen, compacted = attempt.call, attempt.chosen, attempt.compacted
    if is_answered and attempt.body is not None and call and chosen and chosen.later and compacted:
        with fail_open(services.recorder, request_id, Phases("write_ahead")):
            # The upstream has read the prompt by now: a question behind it finds it in the cache.
            write_ahead(services, call, chosen, compacted)
    response = await _relay(services, journey, route, codec, answer)
    if is_answered:
        with fail_open(services.recorder, request_id, Phases("observe")):
            prefix_kept = await observe(services, attempt, journey.answered)
            journey.answered = replace(journey.answered, prefix_kept=prefix_kept)
    return response


async def _relay(
    services: Services, journey: Journey, route: Route, codec: Codec, answer: aiohttp.ClientResponse
) -> web.StreamResponse:
    """Pass the answer on, and count what the model wrote."""
    reply, opening = journey.reply, journey.opening or Opening(answer.status)
    held, overflow = opening.held, opening.overflow
    if overflow is not None and overflow.is_flat and answer.status != 200 and overflow.kind in REWRITTEN_KINDS:
        held = codec.write_error(ErrorText(overflow.text, PROMPT_TOO_LONG), as_event=False)
        if reply.response is None:
            return await replace_answer(reply, answer, journey.write_headers(), held)
    is_stream = answer.content_type == "text/event-stream"
    tap = codec.tap(is_stream=is_stream) if answer.status == 200 else None
    added = () if reply.response is not None else journey.write_headers()
    response = await relay_answer(reply, answer, added, held=held, tap=tap, write_event=codec.write_event)
    if tap is not None:
        journey.answered = await count_answer(services, route, tap)
    return response
