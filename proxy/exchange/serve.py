"""The journey of a request that a codec claims, from its bytes to the end of its answer.

Law: the client gets one answer. The upstream is asked a second time only if it refused the first attempt for its
length. Each field of a journey is the result of one stage; only this module and the router write to it.
"""

import time
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial

import aiohttp
from aiohttp import web

from proxy.compaction.offload import INLINE_BYTES, LARGE_BODY_BYTES, Lane
from proxy.exchange.admission import in_bounds, receive, working
from proxy.exchange.arrival import Arrival
from proxy.exchange.call import Route, choose_route, describe_target, place
from proxy.exchange.choose_summary import write_ahead
from proxy.exchange.compact import Attempt, compact
from proxy.exchange.early_answer import Opening, read_opening
from proxy.exchange.observe import SafeTap, count_answer, observe
from proxy.exchange.recover import learn_from_retry, recover
from proxy.exchange.report import Answered, Prompt, Report, Target, fail_open
from proxy.exchange.services import Services
from proxy.http.errors import OverloadedError, ProxyError
from proxy.http.headers import Headers, add_to_lists, write_own_headers
from proxy.http.relay import Reply, relay_answer, replace_answer
from proxy.http.request_body import ReceivedBody
from proxy.wire.codec import PROMPT_TOO_LONG, Codec, ErrorText, Request, UndecodableError
from proxy.wire.overflow.classify import Overflow
from proxy.wire.overflow.wordings import Kind
from proxy.wire.routing.model import find_deployment
from proxy.wire.transcript.beginnings import MIN_BYTES, Begun

REWRITTEN_KINDS = frozenset({Kind.PROMPT, Kind.SIZE, Kind.GENERATION})
"""For the other kinds, `context_length_exceeded` would make the client compact for nothing."""
MAX_ATTEMPTS = 2  # chosen: a second refusal goes to the client, so that no request loops
_NO_TARGET, _NO_ATTEMPT, _NOTHING_ANSWERED = Target(""), Attempt("aborted"), Answered()


@dataclass(slots=True)
class Journey:
    """One request under way.

    attempts: how often it was sent, or was about to be.
    sent_at: time of the first attempt on the monotonic clock; 0.0 before it.
    asks_usage: the client wants the stream to end with `usage`.
    opening: the beginning of the last attempt's answer; None before it.
    is_hopeless: the client gets the refusal, because nothing shorter could be sent.
    is_count: the upstream only counts the prompt's tokens.
    is_over: the request got its answer, or its client left. If false at the end, an unexpected error stopped it.
    """

    arrival: Arrival
    reply: Reply
    target: Target = _NO_TARGET
    attempt: Attempt = _NO_ATTEMPT
    attempts: int = 0
    sent_at: float = 0.0
    asks_usage: bool = False
    opening: Opening | None = None
    answered: Answered = _NOTHING_ANSWERED
    prefix_kept: float | None = None
    error: ProxyError | None = None
    is_hopeless: bool = False
    is_count: bool = False
    is_over: bool = False

    def begin_attempt(self) -> None:
        """Note that the request is sent, or sent again."""
        self.attempts += 1
        self.sent_at = self.sent_at or time.monotonic()
        self.opening = None

    def write_headers(self) -> Headers:
        """The `x-trimtab-*` headers to add to the answer."""
        prompt, chosen = _describe_prompt(self), self.attempt.chosen
        overhead_seconds = (self.sent_at or time.monotonic()) - self.arrival.started_at
        outcome = self.attempt.outcome if self.error is None else "refused"
        if chosen is not None and chosen.planned.original.continues:
            outcome += ";history=upstream"
        if prompt is None:
            return write_own_headers(self.arrival.request_id, overhead_seconds, outcome)
        tokens = {"original": prompt.original_tokens, "sent": prompt.sent_tokens, "limit": prompt.limit_tokens}
        is_over = prompt.original_tokens > prompt.limit_tokens  # for a request that was refused: it has no plan
        if chosen.planned.plan.window.is_high if chosen else is_over:
            tokens["high_water"] = True
        return write_own_headers(self.arrival.request_id, overhead_seconds, outcome, tokens, prompt.decisions)

    def report(self) -> Report:
        """The report of this request."""
        reply, error = self.reply, self.error
        overflow = None if self.opening is None else self.opening.overflow
        status = reply.status if error is None else error.status
        return Report(
            arrival=self.arrival,
            target=self.target,
            status=status,
            outcome=_name_outcome(self, status),
            seconds=time.monotonic() - self.arrival.started_at,
            # A request that is only counted is sent again to be answered; its tokens are recorded then.
            prompt=None if self.is_count else _describe_prompt(self),
            answered=self.answered,
            prefix_kept=self.prefix_kept,
            pace=reply.pace,
            is_refused=self.is_hopeless or (self.attempts == MAX_ATTEMPTS and overflow is not None),
            retry=_name_retry(self),
            error=error,
            upstream_seconds=reply.last_byte_at - self.sent_at if reply.last_byte_at and self.sent_at else None,
            phase_seconds=self.attempt.seconds,
        )


def _describe_prompt(journey: Journey) -> Prompt | None:
    compacted = journey.attempt.compacted
    if compacted is None:
        return None
    sent_tokens = compacted.sent_tokens if journey.target.mode == "enforce" else compacted.original_tokens
    sent_tokens = sent_tokens if journey.sent_at else 0
    return Prompt(compacted.original_tokens, sent_tokens, compacted.limit_tokens, compacted.decisions)


def _name_outcome(journey: Journey, status: int) -> str:
    """The metrics' label `outcome`. A broken or aborted request counts as such, whatever was done to it."""
    if journey.reply.broken or not journey.is_over:
        return "broken"
    if journey.reply.client_left or not status:
        return "aborted"
    return journey.attempt.outcome if journey.error is None else "refused"


def _name_retry(journey: Journey) -> str:
    """The metrics' label for the second attempt; `hopeless` if nothing shorter could be sent; empty if not needed."""
    opening = journey.opening
    if journey.attempts < MAX_ATTEMPTS:
        return "hopeless" if journey.is_hopeless else ""
    if journey.error is not None or opening is None:
        return "aborted" if journey.error is None else "failed"
    if opening.overflow is not None:
        return "refused"
    return "recovered" if opening.status == 200 else "failed"


async def serve(services: Services, journey: Journey, codec: Codec) -> web.StreamResponse:
    """Serve the request; compact it if its mode and size ask for that. Raises ProxyError."""
    lane = services.lane(journey.arrival.tenant)
    received, begun = await receive(
        services, journey.reply.request, lane, partial(_find_begun, services, journey, codec)
    )
    async with working(services, journey.reply.request, received):
        request = None if received.json is None else await _read(services, lane, codec, received.json, begun)
        # The model decides the upstream, and so which credential is sent, even if the body is not decoded.
        model = codec.peek_model(received.beginning) if request is None else request.model
        model = model or find_deployment(journey.arrival.target)
        route = _route(services, journey, model)
        place(route.upstream, codec, journey.arrival.target)  # a path that must not get our key is refused first
        if request is None:
            journey.attempt = Attempt("too_large" if received.is_too_large else "undecodable")
        else:
            request, journey.asks_usage = replace(request, model=model), request.asks_usage
            journey.is_count = codec.is_count
            journey.attempt = await compact(services, journey.arrival, route, request, journey.reply)
            call = journey.attempt.call
            journey.target = route.target if call is None else call.route.target  # a part of sessions is observed
            _keep_beginning(services, journey, request if call is None else call.request, begun)
    if journey.attempt.refusal is not None:
        raise journey.attempt.refusal
    refused: Overflow | None = None
    while True:
        journey.begin_attempt()
        async with _send(services, journey, route, codec, received) as answer:
            opening = journey.opening = await _open(journey, codec, answer)
            if refused is not None:
                await learn_from_retry(services, journey.attempt, opening)
            shorter = await _shorten(services, journey, received, opening)
            if shorter is None:
                return await _finish(services, journey, route, codec, answer)
        journey.attempt, refused = shorter, opening.overflow


def _route(services: Services, journey: Journey, model: str) -> Route:
    """Choose upstream and settings. Raises UnknownModeError and UnknownProfileError, after noting the model."""
    config, arrival = services.config, journey.arrival
    try:
        route = choose_route(config, arrival, journey.reply.request.headers, model)
    except ProxyError:
        journey.target = describe_target(arrival, model, config.match_for(model))
        raise
    journey.target = route.target
    return route


def _find_begun(services: Services, journey: Journey, codec: Codec, body: bytes) -> Begun | None:
    """Find the longest common beginning with an earlier body of the same tenant."""
    begun: Begun | None = None
    if len(body) >= MIN_BYTES:
        with fail_open(services.recorder, journey.arrival.request_id, "read"):
            begun = services.compactors.find_beginnings(journey.arrival.tenant.id).find(codec.name, body)
    return begun


def _keep_beginning(services: Services, journey: Journey, request: Request, begun: Begun | None) -> None:
    """Keep this body for the next request of the session, which will begin with it."""
    if request.beginning is not None and request.beginning.decoded:
        with fail_open(services.recorder, journey.arrival.request_id, "read"):
            beginnings = services.compactors.find_beginnings(journey.arrival.tenant.id)
            beginnings.keep(request.codec.name, request.beginning, begun)


async def _read(services: Services, lane: Lane, codec: Codec, body: bytes, begun: Begun | None) -> Request | None:
    """Split the request into its elements; None if it is not a request of this dialect. Then the upstream decides.

    Raises OverloadedError.
    """
    new_bytes = len(body) if begun is None else len(body) - begun.stop
    size_bytes = INLINE_BYTES + 1 if new_bytes > LARGE_BODY_BYTES else 0
    with suppress(UndecodableError), in_bounds():
        return await services.workers.run_bounded(lane, partial(codec.read, body, begun), size_bytes=size_bytes)
    return None


def _send(
    services: Services, journey: Journey, route: Route, codec: Codec, received: ReceivedBody
) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
    """Send the request; the answer's body is not read yet. Raises UpstreamUnreachableError, UpstreamTimeoutError."""
    upstream, arrival = route.upstream, journey.arrival
    url, headers = place(upstream, codec, arrival.target), arrival.forward(upstream)
    attempt = journey.attempt
    if attempt.body is not None and attempt.compacted is not None:
        add_to_lists(headers, attempt.compacted.headers)
    outgoing = received.write(attempt.body, headers)
    return services.client.send("POST", url, headers, outgoing, upstream)


async def _open(journey: Journey, codec: Codec, answer: aiohttp.ClientResponse) -> Opening:
    """Read the beginning of the answer; nothing if a second attempt is not possible anyway."""
    if journey.attempt.body is None:
        return Opening(answer.status)
    return await read_opening(journey.reply, answer, codec, journey.write_headers)


async def _shorten(services: Services, journey: Journey, received: ReceivedBody, opening: Opening) -> Attempt | None:
    """Plan the next attempt; None if the client gets this answer."""
    if opening.overflow is None or journey.attempts == MAX_ATTEMPTS:
        return None
    shorter: Attempt | None = None
    with suppress(OverloadedError):
        async with working(services, journey.reply.request, received):
            shorter = await recover(services, journey.attempt, opening.overflow, journey.reply)
    journey.is_hopeless = shorter is None
    return shorter


async def _finish(
    services: Services, journey: Journey, route: Route, codec: Codec, answer: aiohttp.ClientResponse
) -> web.StreamResponse:
    """Pass the answer on, and learn from it."""
    attempt, opening, request_id = journey.attempt, journey.opening, journey.arrival.request_id
    is_answered = answer.status == 200 and opening is not None and opening.overflow is None
    call, chosen, compacted = attempt.call, attempt.chosen, attempt.compacted
    if is_answered and attempt.body is not None and call and chosen and chosen.later and compacted:
        with fail_open(services.recorder, request_id, "write_ahead"):
            # The upstream has read the prompt by now, so a question after it finds the prompt in the cache.
            write_ahead(services, call, chosen, compacted)
    response = await _relay(services, journey, route, codec, answer)
    if is_answered and not journey.is_count:
        with fail_open(services.recorder, request_id, "observe"):
            journey.prefix_kept = await observe(services, attempt, journey.answered)
    return response


async def _relay(
    services: Services, journey: Journey, route: Route, codec: Codec, answer: aiohttp.ClientResponse
) -> web.StreamResponse:
    """Pass the answer on, and count what the model wrote."""
    reply, opening = journey.reply, journey.opening or Opening(answer.status)
    held, overflow = opening.held, opening.overflow
    if overflow is not None and overflow.is_flat and answer.status != 200 and overflow.kind in REWRITTEN_KINDS:
        held = codec.write_error(_describe(overflow), as_event=False)
        if reply.response is None:
            return await replace_answer(reply, answer, journey.write_headers(), held)
    is_stream = answer.content_type == "text/event-stream"
    request_id, tap = journey.arrival.request_id, None
    if answer.status == 200 and not journey.is_count:
        read_along = codec.tap(is_stream=is_stream, asks_usage=journey.asks_usage)
        tap = SafeTap(read_along, services.recorder, request_id)
    added = () if reply.response is not None else journey.write_headers()
    response = await relay_answer(reply, answer, added, held=held, tap=tap, write_event=codec.write_event)
    if tap is not None and tap.tap is not None:
        with fail_open(services.recorder, request_id, "count"):
            journey.answered = await count_answer(services, journey.arrival.tenant, route, tap.tap)
    return response


def _describe(overflow: Overflow) -> ErrorText:
    """The upstream's own words as an error that clients recognise."""
    told = (overflow.requested, overflow.limit) if overflow.unit == "tokens" else (None, None)
    return ErrorText(overflow.text, PROMPT_TOO_LONG, tokens=told[0], limit_tokens=told[1])
