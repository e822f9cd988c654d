"""Serves a request that a codec claims, from its bytes to the end of its answer.

Law: the client gets one answer. The upstream is asked a second time only if it refused the first attempt for its
length, or for something that only trimtab has added.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial

import aiohttp
from aiohttp import web

from trimtab.proxy.account.recorder import fail_open
from trimtab.proxy.compaction.offload import LARGE_BODY_BYTES, SMALL_BODY_BYTES, THREAD_BYTES, BusyError, Lane
from trimtab.proxy.exchange.answer import NOTHING_LEARNED, Keep, Learned, SafeTap, learn, learn_from_left, listen
from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.attempt import MAX_ATTEMPTS, NO_ATTEMPT, Attempt, Passed, Prepared, Ready
from trimtab.proxy.exchange.compact import compact, help_cache
from trimtab.proxy.exchange.early_answer import Opening, read_opening
from trimtab.proxy.exchange.recall import Talk, takes_calls
from trimtab.proxy.exchange.retry import change, learn_from_retry, recover
from trimtab.proxy.exchange.route import NO_TARGET, choose_route, describe_target, place
from trimtab.proxy.exchange.services import Services, receive, translate, working
from trimtab.proxy.exchange.summary import write_ahead
from trimtab.proxy.exchange.tell import Finished, Note, write_headers
from trimtab.proxy.exchange.trace import Trace, begin_trace
from trimtab.proxy.http.client import Sending
from trimtab.proxy.http.errors import OverloadedError, ProxyError
from trimtab.proxy.http.headers import add_to_lists
from trimtab.proxy.http.relay import EVENTS_OR_UNNAMED, Reply, relay_answer, replace_answer
from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, ErrorText
from trimtab.proxy.wire.codec import Codec, Request, UndecodableError
from trimtab.proxy.wire.overflow import Kind, Overflow
from trimtab.proxy.wire.routing import find_deployment
from trimtab.proxy.wire.transcript.body import PrefixMatch

REWRITTEN_KINDS = frozenset({Kind.PROMPT, Kind.SIZE, Kind.GENERATION})
"""For the other kinds, `context_length_exceeded` would make the client compact for nothing."""


async def serve(services: Services, arrival: Arrival, reply: Reply, codec: Codec, note: Note) -> web.StreamResponse:
    """Serve the request; compact it if its mode and size ask for that. Raises ProxyError."""
    ready = await _prepare(services, arrival, reply, codec, note)
    return await _exchange(services, ready, note)


async def _prepare(services: Services, arrival: Arrival, reply: Reply, codec: Codec, note: Note) -> Ready:
    """Receive, read and plan the request. Raises ProxyError."""
    target, request = NO_TARGET, None
    trace: Trace | None = None
    attempt: Attempt = NO_ATTEMPT
    ready: Ready | None = None
    try:
        lane = services.lane(arrival.tenant)
        received, match = await receive(services, reply, arrival, lane, codec)
        async with working(services, reply.request, received):
            request = None if received.json is None else await _read(services, lane, codec, received.json, match)
            # The model decides the upstream, and so which credential is sent, even if the body is not decoded.
            model = codec.peek_model(received.beginning) if request is None else request.model
            model = model or find_deployment(arrival.target)
            try:
                route = choose_route(services.config, arrival, reply.request.headers, model, codec, request)
            except ProxyError:
                target = describe_target(services.config, arrival, model, services.config.match_for(model))
                raise
            target = route.target
            url = route.url or place(route.upstream, codec, arrival.target)  # raises if the path must not get our key
            if services.spans is not None:
                trace = begin_trace(services.spans, arrival, route.target.shown_model, url, codec)
            if request is None:
                attempt = Passed("too_large" if received.is_too_large else "undecodable")
            else:
                request = request if request.model == model else replace(request, model=model)
                reply.event_kinds = EVENTS_OR_UNNAMED if request.stream else reply.event_kinds
                attempt = await compact(services, arrival, route, request, reply, lane)
                target = route.target if attempt.call is None else attempt.call.route.target  # some are only observed
                _keep_bodies(services, arrival, request, attempt, match)
        if attempt.refusal is not None:
            raise attempt.refusal
        ready = Ready(arrival, reply, codec, received, request, route, url, target, trace, attempt, time.monotonic())
        return ready
    finally:
        if ready is None:
            note(Finished(arrival, reply, target, attempt, request, trace))


async def _exchange(services: Services, ready: Ready, note: Note) -> web.StreamResponse:
    """Send the request and pass the answer on; once more if it was refused. Raises ProxyError."""
    attempt, opening, learned, is_hopeless = ready.attempt, None, NOTHING_LEARNED, False

    def keep(found: Learned) -> None:
        nonlocal learned
        learned = found

    try:
        while True:
            answer, opening = None, None
            sending = _send(services, ready, attempt)
            try:
                async with sending as answer:
                    opening = await _open(ready, attempt, answer)
                    again, is_hopeless = await _ask_again(services, ready, attempt, opening)
                    if again is None:
                        return await _finish(services, ready, attempt, opening, answer, keep)
            except (asyncio.CancelledError, ConnectionError):  # the client has left
                if opening is None:
                    await learn_from_left(services, ready, attempt, sending, answer, keep)
                raise
            except ProxyError as error:
                error.is_unsent = error.is_unsent and attempt is ready.attempt
                raise
            attempt = again
    finally:
        arrival, reply, request, trace = ready.arrival, ready.reply, ready.request, ready.trace
        sent_at = ready.sent_at
        note(Finished(arrival, reply, ready.target, attempt, request, trace, sent_at, opening, learned, is_hopeless))


def _keep_bodies(
    services: Services, arrival: Arrival, request: Request, attempt: Attempt, match: PrefixMatch | None
) -> None:
    """Keep the body for the next request of the session, which will begin with it; also without what is not sent."""
    kept_body = request.kept_body
    left = kept_body if attempt.call is None else attempt.call.request.kept_body
    kept = [(kept_body, match)] if left is kept_body else [(kept_body, match), (left, None)]
    for one, continued in kept:
        if one is not None and (one.decoded or attempt.outcome == "off"):  # off: nothing is decoded, but split
            with fail_open(services.recorder, arrival.request_id, "read"):
                kept_bodies = services.compactors.find_kept_bodies(arrival.tenant.id)
                kept_bodies.keep(request.codec.name, one, continued)


async def _read(services: Services, lane: Lane, codec: Codec, body: bytes, match: PrefixMatch | None) -> Request | None:
    """Split a request; None if it is not of this dialect: then the upstream decides. Raises OverloadedError."""
    body_bytes = len(body)
    new_bytes = body_bytes if match is None else body_bytes - match.stop
    size_bytes = THREAD_BYTES if new_bytes > LARGE_BODY_BYTES else 0
    try:
        if body_bytes <= SMALL_BODY_BYTES:
            return codec.read(body, match)
        return await services.workers.run_bounded(lane, partial(codec.read, body, match), size_bytes=size_bytes)
    except UndecodableError:
        return None
    except (BusyError, MemoryError) as error:
        raise translate(error) from error


def _send(services: Services, ready: Ready, attempt: Attempt) -> Sending:
    """Send the request; the answer's body is not read yet. Raises UpstreamUnreachableError, UpstreamTimeoutError."""
    upstream = ready.route.upstream
    headers = ready.arrival.forward(upstream)
    if attempt.body is not None and attempt.compacted is not None and attempt.compacted.headers:
        add_to_lists(headers, attempt.compacted.headers)
    if ready.trace is not None:
        ready.trace.send(headers)
    return services.client.prepare("POST", ready.url, headers, ready.received.write(attempt.body, headers), upstream)


async def _open(ready: Ready, attempt: Attempt, answer: aiohttp.ClientResponse) -> Opening:
    """Read the beginning of the answer; nothing if a second attempt is not possible anyway."""
    if attempt.body is None:
        opening = Opening(answer.status)
    else:
        headers = partial(write_headers, ready.arrival, attempt, ready.sent_at)
        opening = await read_opening(ready.reply, answer, ready.codec, headers)
    if ready.trace is not None:
        ready.trace.hear(opening)
    return opening


async def _ask_again(
    services: Services, ready: Ready, attempt: Attempt, opening: Opening
) -> tuple[Prepared | None, bool]:
    """The next attempt, or None if the client gets this answer; and whether it does because nothing shorter fits."""
    if not isinstance(attempt, Prepared):
        return None, False
    if opening.status != 200 or attempt.is_own or attempt.dropped:
        other = await change(services, attempt, opening)
        if other is not None:
            return other, False
    if attempt.lesson is not None:
        await learn_from_retry(services, attempt, attempt.lesson, opening)
    if opening.overflow is None or attempt.call.attempt == MAX_ATTEMPTS:
        return None, False
    shorter: Prepared | None = None
    with suppress(OverloadedError):
        async with working(services, ready.reply.request, ready.received):
            shorter = await recover(services, attempt, opening.overflow, ready.reply)
    return (None, True) if shorter is None else (await help_cache(services, shorter), False)


async def _finish(
    services: Services, ready: Ready, attempt: Attempt, opening: Opening, answer: aiohttp.ClientResponse, keep: Keep
) -> web.StreamResponse:
    is_answered = answer.status == 200 and opening.overflow is None
    if is_answered and isinstance(attempt, Prepared) and attempt.body is not None and attempt.chosen.later:
        with fail_open(services.recorder, ready.arrival.request_id, "write_ahead"):
            # The upstream has read the prompt by now, so a question after it finds the prompt in the cache.
            write_ahead(services, attempt.call, attempt.chosen, attempt.compacted)
    if ready.route.settings.recall == "tool" and is_answered and takes_calls(attempt) and isinstance(attempt, Prepared):
        talk = Talk(services, ready, attempt, keep, partial(write_headers, ready.arrival, attempt, ready.sent_at))
        return await talk.converse(answer, opening.held, partial(_send, services, ready))
    tap = listen(services, ready, answer)
    try:
        return await _relay(ready, attempt, opening, answer, tap)
    finally:  # whenever the client leaves
        if is_answered and tap is not None:
            await learn(services, ready, attempt, tap, keep)


async def _relay(
    ready: Ready, attempt: Attempt, opening: Opening, answer: aiohttp.ClientResponse, tap: SafeTap | None
) -> web.StreamResponse:
    reply, held, overflow = ready.reply, opening.held, opening.overflow
    added = () if reply.response is not None else write_headers(ready.arrival, attempt, ready.sent_at)
    if overflow is not None and overflow.is_flat and answer.status != 200 and overflow.kind in REWRITTEN_KINDS:
        held = ready.codec.write_error(_describe(overflow), as_event=False)
        if reply.response is None:
            return await replace_answer(reply, answer, added, held)
    return await relay_answer(reply, answer, added, held=held, tap=tap, write_event=ready.codec.write_event)


def _describe(overflow: Overflow) -> ErrorText:
    told = (overflow.requested, overflow.limit) if overflow.unit == "tokens" else (None, None)
    return ErrorText(overflow.text, PROMPT_TOO_LONG, tokens=told[0], limit_tokens=told[1])
