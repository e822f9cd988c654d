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
from yarl import URL

from proxy.account.outcome import Answered
from proxy.account.recorder import fail_open
from proxy.compaction.offload import INLINE_BYTES, LARGE_BODY_BYTES, MANY_MESSAGES, Lane
from proxy.config.secrets import find_in_name
from proxy.exchange.admission import in_bounds, receive, working
from proxy.exchange.answer import ModelTap, SafeTap, count_answer, observe
from proxy.exchange.attempt import Attempt, Passed, Prepared
from proxy.exchange.bill import draw_bill
from proxy.exchange.cold import prepare_cold, remember
from proxy.exchange.compact import compact, help_cache
from proxy.exchange.early_answer import Opening, read_opening
from proxy.exchange.journey import MAX_ATTEMPTS, Journey
from proxy.exchange.phases import Phases
from proxy.exchange.retry import change, learn_from_retry, may_change, recover
from proxy.exchange.route import Route, choose_route, describe_target, heed_own_words, place
from proxy.exchange.services import Services
from proxy.exchange.summary import write_ahead
from proxy.exchange.trace import begin_trace
from proxy.http.client import Sending
from proxy.http.errors import OverloadedError, ProxyError
from proxy.http.headers import add_to_lists
from proxy.http.relay import relay_answer, replace_answer
from proxy.http.request_body import ReceivedBody
from proxy.tasks import see_through
from proxy.wire.codec import PROMPT_TOO_LONG, Codec, ErrorText, Request, UndecodableError
from proxy.wire.overflow.classify import Overflow
from proxy.wire.overflow.wordings import Kind
from proxy.wire.routing import find_deployment
from proxy.wire.transcript.beginnings import Beginning, Begun

REWRITTEN_KINDS = frozenset({Kind.PROMPT, Kind.SIZE, Kind.GENERATION})
"""For the other kinds, `context_length_exceeded` would make the client compact for nothing."""


async def serve(services: Services, journey: Journey, codec: Codec) -> web.StreamResponse:
    """Serve the request; compact it if its mode and size ask for that. Raises ProxyError."""
    arrival, reply = journey.arrival, journey.reply
    lane = services.lane(arrival.tenant)
    received, begun = await receive(services, reply, arrival, lane, codec)
    async with working(services, reply.request, received):
        request = None if received.json is None else await _read(services, lane, codec, received.json, begun)
        # The model decides the upstream, and so which credential is sent, even if the body is not decoded.
        model = codec.peek_model(received.beginning) if request is None else request.model
        model = model or find_deployment(arrival.target)
        route = _route(services, journey, model, codec)
        url = route.url or place(route.upstream, codec, arrival.target)  # raises if the path must not get our key
        if services.spans.is_on:
            journey.trace = begin_trace(services.spans, arrival, route, url, codec)
        if request is None:
            journey.attempt = Passed("too_large" if received.is_too_large else "undecodable")
        else:
            route = heed_own_words(route, arrival, request)
            request = request if request.model == model else replace(request, model=model)
            await _compact(services, journey, route, request, begun)
    if journey.attempt.refusal is not None:
        raise journey.attempt.refusal
    try:
        return await _exchange(services, journey, route, url, codec, received)
    except asyncio.CancelledError:  # the client has left
        await _book_unanswered(services, journey, route)
        raise


async def _exchange(
    services: Services, journey: Journey, route: Route, url: URL, codec: Codec, received: ReceivedBody
) -> web.StreamResponse:
    """Send the request and pass the answer on; once more if it was refused. Raises ProxyError."""
    while True:
        journey.begin_attempt()
        async with _send(services, journey, route, url, received) as answer:
            opening = journey.opening = await _open(services, journey, route, codec, answer)
            if journey.trace.is_on:
                journey.trace.hear(opening)
            attempt, shorter = journey.attempt, None
            if isinstance(attempt, Prepared):
                other = await change(services, attempt, opening) if may_change(attempt, opening) else None
                if other is not None:
                    journey.repeat_attempt(other)
                    continue
                if attempt.lesson is not None:
                    await learn_from_retry(services, attempt, attempt.lesson, opening)
                if opening.overflow is not None and journey.attempts < MAX_ATTEMPTS:
                    shorter = await _shorten(services, journey, attempt, received, opening.overflow)
            if shorter is None:
                return await _finish(services, journey, route, codec, answer)
        journey.attempt = await help_cache(services, shorter)


async def _compact(services: Services, journey: Journey, route: Route, request: Request, begun: Begun | None) -> None:
    """Make the first attempt, and keep what the next request of the session will begin with."""
    journey.request = request
    journey.asks_usage, journey.is_count = request.asks_usage, request.codec.is_count
    attempt = journey.attempt = await compact(services, journey.arrival, route, request, journey.reply, journey.ledger)
    call, beginning = attempt.call, request.beginning
    journey.target = route.target if call is None else call.route.target  # a part of sessions is observed
    if beginning is not None and beginning.decoded:
        _keep_beginning(services, journey, request.codec.name, beginning, begun)
    left = None if call is None else call.request.beginning  # of the body without what must not be sent
    if left is not None and left is not beginning and left.decoded:
        _keep_beginning(services, journey, request.codec.name, left, None)


def _route(services: Services, journey: Journey, model: str, codec: Codec) -> Route:
    """Choose upstream and settings. Raises UnknownModeError and UnknownProfileError, after noting the model."""
    config, arrival = services.config, journey.arrival
    try:
        route = choose_route(config, arrival, journey.reply.request.headers, model, codec)
    except ProxyError:
        journey.target = describe_target(config, arrival, model, config.match_for(model))
        raise
    journey.target = route.target
    return route


def _keep_beginning(
    services: Services, journey: Journey, dialect: str, beginning: Beginning, begun: Begun | None
) -> None:
    """Keep this body for the next request of the session, which will begin with it."""
    with fail_open(services.recorder, journey.arrival.request_id, "read"):
        services.compactors.find_beginnings(journey.arrival.tenant.id).keep(dialect, beginning, begun)


async def _read(services: Services, lane: Lane, codec: Codec, body: bytes, begun: Begun | None) -> Request | None:
    """Split the request into its elements; None if it is not a request of this dialect. Then the upstream decides.

    Raises OverloadedError.
    """
    new_bytes = len(body) if begun is None else len(body) - begun.stop
    size_bytes = INLINE_BYTES + 1 if new_bytes > LARGE_BODY_BYTES else 0
    try:
        with in_bounds():
            return await services.workers.run_bounded(lane, partial(codec.read, body, begun), size_bytes=size_bytes)
    except UndecodableError:
        return None


def _send(services: Services, journey: Journey, route: Route, url: URL, received: ReceivedBody) -> Sending:
    """Send the request; the answer's body is not read yet. Raises UpstreamUnreachableError, UpstreamTimeoutError."""
    upstream, attempt = route.upstream, journey.attempt
    headers = journey.arrival.forward(upstream)
    if attempt.body is not None and attempt.compacted is not None and attempt.compacted.headers:
        add_to_lists(headers, attempt.compacted.headers)
    if journey.trace.is_on:
        journey.trace.send(headers)
    outgoing = received.write(attempt.body, headers)
    journey.sending = services.client.prepare("POST", url, headers, outgoing, upstream)
    return journey.sending


async def _open(
    services: Services, journey: Journey, route: Route, codec: Codec, answer: aiohttp.ClientResponse
) -> Opening:
    """Read the beginning of the answer; nothing if a second attempt is not possible anyway."""
    if journey.attempt.body is None:
        return Opening(answer.status)
    try:
        return await read_opening(journey.reply, answer, codec, journey.write_headers)
    except (asyncio.CancelledError, ConnectionError):  # the client has left
        await _book(services, journey, route, _listen(services, journey, codec, answer, is_over=True))
        raise


async def _shorten(
    services: Services, journey: Journey, attempt: Prepared, received: ReceivedBody, overflow: Overflow
) -> Prepared | None:
    """Plan the next attempt; None if the client gets this answer."""
    shorter: Prepared | None = None
    with suppress(OverloadedError):
        async with working(services, journey.reply.request, received):
            shorter = await recover(services, attempt, overflow, journey.reply)
    journey.is_hopeless = shorter is None
    return shorter


async def _finish(
    services: Services, journey: Journey, route: Route, codec: Codec, answer: aiohttp.ClientResponse
) -> web.StreamResponse:
    """Pass the answer on, and learn from it."""
    attempt, opening, request_id = journey.attempt, journey.opening, journey.arrival.request_id
    is_answered = answer.status == 200 and opening is not None and opening.overflow is None
    if is_answered and isinstance(attempt, Prepared) and attempt.body is not None and attempt.chosen.later:
        with fail_open(services.recorder, request_id, "write_ahead"):
            # The upstream has read the prompt by now, so a question after it finds the prompt in the cache.
            write_ahead(services, attempt.call, attempt.chosen, attempt.compacted)
    tap = _listen(services, journey, codec, answer)
    try:
        return await _relay(journey, codec, answer, tap)
    finally:  # whenever the client leaves
        await _book(services, journey, route, tap if is_answered else None)


async def _book(services: Services, journey: Journey, route: Route, tap: SafeTap | None) -> None:
    """Learn from an answer, or from the part of it that was read. Without a tap, there is nothing to learn."""
    if tap is None:
        return
    if isinstance(tap, ModelTap):
        own = find_in_name(services.config, tap.model)
        journey.response_model, _ = journey.arrival.tell_name(tap.model, own)
    learning = _learn(services, journey, route, tap)
    # A client may close its connection as soon as it has the answer, which cancels whatever waits.
    await (learning if _learns_at_once(services, route, journey.attempt, tap) else see_through(learning))


async def _book_unanswered(services: Services, journey: Journey, route: Route) -> None:
    """Book the prompt of a request whose client left before the upstream began to answer: it may be charged.

    What the model wrote is not known, and nothing is learned.
    """
    if journey.sending is None or not journey.sending.is_unanswered or journey.is_count:
        return
    attempt, request_id = journey.attempt, journey.arrival.request_id
    journey.answered = Answered(completion_tokens=0, is_estimated=True)
    with fail_open(services.recorder, request_id, "observe"):
        journey.observed = await observe(services, attempt, journey.answered, is_answered=False)
    with fail_open(services.recorder, request_id, "bill"):
        journey.bill = await draw_bill(services, route, attempt, journey.answered, journey.observed.prefix_kept)


def _learns_at_once(services: Services, route: Route, attempt: Attempt, tap: SafeTap) -> bool:
    """Whether learning from an answer waits neither for a thread nor for the store."""
    unknown_chars = tap.find_uncounted_chars()
    if unknown_chars > INLINE_BYTES:
        return False
    if unknown_chars and not services.compactors.is_ready(route.settings, route.target.model):
        return False
    messages = len(attempt.chosen.planned.plan.hashes) if isinstance(attempt, Prepared) else 0
    return not messages or (messages <= MANY_MESSAGES and not services.cold_cuts.is_kept)


async def _learn(services: Services, journey: Journey, route: Route, tap: SafeTap) -> None:
    """Count what the model wrote, and note what the answer has cost and shows. The client has its answer already."""
    attempt, phases = journey.attempt, Phases("count")
    guarded = fail_open(services.recorder, journey.arrival.request_id, phases)
    if tap.tap is not None:
        with guarded:
            window_tokens = _find_window(route, attempt)
            journey.answered = await count_answer(services, journey.arrival.tenant, route, tap.tap, window_tokens)
    phases.current = "observe"
    with guarded:
        age_seconds = time.monotonic() - journey.sent_at
        journey.observed = await observe(services, attempt, journey.answered, age_seconds=age_seconds)
    phases.current = "bill"
    with guarded:
        kept = journey.observed.prefix_kept
        journey.bill = await draw_bill(services, route, attempt, journey.answered, kept)
    phases.current = "observe"
    if services.cold_cuts.is_kept:
        with guarded:
            prepare_cold(services, attempt, journey.answered)
            await remember(services, attempt, journey.answered)  # the last, because it waits for the store


def _find_window(route: Route, attempt: Attempt) -> int:
    """The model's window, or the prompt if that is longer, for what can be true of an answer."""
    window_tokens = route.settings.find_window() if attempt.call is None else attempt.call.view.believed_tokens
    return window_tokens if attempt.compacted is None else max(window_tokens, attempt.compacted.original_tokens)


def _listen(
    services: Services, journey: Journey, codec: Codec, answer: aiohttp.ClientResponse, *, is_over: bool = False
) -> SafeTap | None:
    """What reads the answer along; None if it has nothing to tell. `is_over`: it will not be read."""
    if answer.status != 200 or journey.is_count:
        return None
    is_stream = answer.content_type == "text/event-stream"
    read_along = codec.tap(is_stream=is_stream, asks_usage=journey.asks_usage)
    made = SafeTap if not journey.trace.is_on else ModelTap
    tap = made(read_along, services.recorder, journey.arrival.request_id)
    if is_over:
        tap.finish(is_cut=True)
    return tap


async def _relay(
    journey: Journey, codec: Codec, answer: aiohttp.ClientResponse, tap: SafeTap | None
) -> web.StreamResponse:
    """Pass the answer on."""
    reply, opening = journey.reply, journey.opening or Opening(answer.status)
    held, overflow = opening.held, opening.overflow
    if overflow is not None and overflow.is_flat and answer.status != 200 and overflow.kind in REWRITTEN_KINDS:
        held = codec.write_error(_describe(overflow), as_event=False)
        if reply.response is None:
            return await replace_answer(reply, answer, journey.write_headers(), held)
    added = () if reply.response is not None else journey.write_headers()
    return await relay_answer(reply, answer, added, held=held, tap=tap, write_event=codec.write_event)


def _describe(overflow: Overflow) -> ErrorText:
    """The upstream's own words as an error that clients recognise."""
    told = (overflow.requested, overflow.limit) if overflow.unit == "tokens" else (None, None)
    return ErrorText(overflow.text, PROMPT_TOO_LONG, tokens=told[0], limit_tokens=told[1])
