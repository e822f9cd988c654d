"""A chat completion, from the client's bytes to the upstream's answer.

Law: the only broad `except` of the program stands here: a fault inside compaction forwards the original bytes, and
is counted.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial

import aiohttp
from aiohttp import web

from proxy.body import chain, peek_model, read_body, read_chat
from proxy.codecs.chat import ChatRequest
from proxy.codecs.message import UndecodableError
from proxy.compaction import Planned, describe_refused
from proxy.config import PolicyConfig
from proxy.errors import ContextExceededError, ProxyError, UnknownProfileError
from proxy.exchange import Exchange
from proxy.records import ModelName
from proxy.relay import relay_answer, relay_into_stream
from proxy.services import Services
from proxy.stream import ResponseTap
from proxy.texts import Call, Carried, carry_out, make_call, write_ahead
from proxy.threads import GLANCE_BYTES, INLINE_BYTES, LARGE_BODY_BYTES, MANY_MESSAGES, run_work
from proxy.upstream import read_headers, request_headers, target_url
from rules.conversation import Message
from rules.pipeline import LimitExceededError


@dataclass(slots=True)
class _Done:
    """A request that was planned and carried out; or is left as it came, and `carried` is None until it is counted."""

    call: Call
    carried: Carried | None


async def serve_chat(services: Services, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
    """Serve a chat completion, compacted where that is called for."""
    body = await read_body(request, services.config.limits.max_body_bytes)
    chat = await read_chat(body) if isinstance(body, bytes) else None
    done: _Done | None = None
    if chat is not None:
        settings = _choose_settings(services, request, chat.model, exchange)
        done = await _compact(services, request, chat, settings, exchange)
        enforced = done.carried if done is not None and exchange.mode == "enforce" else None
        body = enforced.compacted.body if enforced is not None else chat.body
    else:
        # Not decoded, but its model still says whose upstream it is for, and whose credential it carries.
        settings = _choose_settings(services, request, peek_model(body), exchange)
        exchange.outcome = "undecodable" if isinstance(body, bytes) else "too_large"
    upstream = services.config.upstream_for(settings.upstream)
    url = target_url(upstream, request.raw_path, is_api=True)
    headers = request_headers(read_headers(request.raw_headers), upstream, identity=True)
    if not isinstance(body, bytes) and "Content-Length" in request.headers:
        headers["Content-Length"] = request.headers["Content-Length"]
    outgoing = body if isinstance(body, bytes) else chain(body, request)
    exchange.sent_at = time.monotonic()
    async with (
        _count_beside(services, done) as counted,
        services.client.send("POST", url, headers, outgoing, upstream) as answer,
    ):
        await counted
        if done is None or answer.status != 200:
            return await _relay(services, settings, request, answer, exchange)
        if exchange.mode == "enforce" and done.carried is not None:
            with _fail_open(services, exchange, "write_ahead"):
                # The upstream has read the prompt by now: a question behind it finds it in the cache.
                write_ahead(done.call, done.carried)
        response = await _relay(services, settings, request, answer, exchange)
        with _fail_open(services, exchange, "observe"):
            services.models.vouch_for(done.call.model)
            if done.carried is not None:
                await _observe(done.call, done.carried)
        return response


@asynccontextmanager
async def _count_beside(services: Services, done: _Done | None) -> AsyncIterator[Awaitable[None]]:
    """While the block runs, a request that was sent uncounted is counted; the block gets what waits for that."""
    counting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if done is None or done.carried is not None:
        counting.set_result(None)
    else:
        counting = asyncio.get_running_loop().create_task(_count_sent(services, done))
    try:
        yield counting
    except ProxyError:  # its answer tells, too, what was sent
        await counting
        raise
    finally:
        counting.cancel()


async def _count_sent(services: Services, done: _Done) -> None:
    """Count a request that is on its way as it came."""
    call, exchange = done.call, done.call.exchange
    try:
        with _fail_open(services, exchange, "count"):
            planned = await run_work(partial(call.compactor.plan, call.chat, call.policy), in_thread=True)
            exchange.compacted = call.compactor.leave(planned)
            done.carried = Carried(planned, exchange.compacted, planned.plan.prefetch)
    except UndecodableError:
        exchange.outcome = "undecodable"


async def _observe(call: Call, carried: Carried) -> None:
    """Learn from what the upstream reports how its tokens compare with ours, and see what it had read before."""
    exchange = call.exchange
    sent = carried.compacted.forwarded if exchange.mode == "enforce" else carried.planned.original
    if exchange.reported_prompt_tokens and all(map(_is_read_by_all, sent.messages)):
        limit = call.policy.model_limit_tokens(call.chat.max_tokens)
        call.services.models.observe(call.model, sent.tokens, exchange.reported_prompt_tokens, limit)
    if exchange.mode == "enforce":
        await _observe_prefix(call, carried)


def _is_read_by_all(message: Message) -> bool:
    """Whether what a message costs is for the vocabulary to say: no image, and no reasoning, which servers may drop."""
    raw = message.raw or b""
    return not message.media and b'"reasoning' not in raw and b'"thinking' not in raw


async def _observe_prefix(call: Call, carried: Carried) -> None:
    """See how much of the prompt the upstream had read before."""
    hashes, forwarded = carried.planned.plan.hashes, carried.compacted.forwarded
    client = f"{call.summariser.client_id} {hash(call.chat.model)}"  # each model has a cache of its own
    work = partial(call.services.watch.observe, client, hashes, forwarded, call.chat.fixed)
    call.exchange.prefix_kept = await run_work(work, in_thread=len(hashes) > MANY_MESSAGES)


async def _relay(
    services: Services,
    settings: PolicyConfig,
    request: web.BaseRequest,
    answer: aiohttp.ClientResponse,
    exchange: Exchange,
) -> web.StreamResponse:
    """Pass the answer on, and count what the model wrote."""
    is_stream = answer.content_type == "text/event-stream"
    tap = ResponseTap(is_stream=is_stream) if answer.status == 200 else None
    if exchange.stream is not None:
        response = await relay_into_stream(request, answer, exchange.stream, tap, exchange.relayed)
    else:
        response = await relay_answer(request, answer, exchange.response_headers(), tap, exchange.relayed)
    if tap is not None:
        await _count_answer(services, settings, tap, exchange)
    return response


def _choose_settings(services: Services, request: web.BaseRequest, model: str, exchange: Exchange) -> PolicyConfig:
    """The policy of a request, its mode, and the label under which it is counted. Raises UnknownProfileError."""
    config = services.config
    overrides = request.headers if config.allow_header_override else {}
    match = config.match_for(model)
    exchange.model, exchange.match = model, match.match if match else None
    exchange.mode = _lower_mode(config.mode, overrides.get("x-trimtab-mode", ""))
    profile = overrides.get("x-trimtab-profile")
    try:
        return config.policy_for(model, profile)
    except KeyError as error:
        known = ", ".join(config.profiles) or "there are none"
        message = f"x-trimtab-profile names no profile of the configuration; known: {known}"
        raise UnknownProfileError(message) from error


def _lower_mode(configured: str, wanted: str) -> str:
    """The weaker of two modes: a header makes the proxy do less, never more."""
    modes = ("off", "observe", "enforce")
    return modes[min(modes.index(configured), modes.index(wanted) if wanted in modes else 2)]


async def _compact(
    services: Services, request: web.BaseRequest, chat: ChatRequest, settings: PolicyConfig, exchange: Exchange
) -> _Done | None:
    """The request compacted, or what would become of it; None where it goes out as it came.

    Raises ContextExceededError where the policy refuses what cannot fit.
    """
    exchange.outcome = exchange.mode
    if exchange.mode == "off":
        return None
    done: _Done | None = None
    try:
        exchange.outcome = "failed_open"  # unless what follows comes to its end
        with _fail_open(services, exchange, "plan"):
            call = await make_call(services, request, chat, settings, exchange)
            uncounted_bytes = call.compactor.uncounted_bytes(chat)
            leave = await _is_far_below(call, uncounted_bytes)
            done = _Done(call, None if leave else await _plan_and_carry_out(call, uncounted_bytes))
    except UndecodableError:
        exchange.outcome = "undecodable"
    except LimitExceededError as error:
        exchange.outcome = exchange.mode
        exchange.compacted = describe_refused(chat, error)
        if exchange.mode == "enforce":
            raise ContextExceededError(_describe_excess(error)) from error
    if done is None:
        return None
    exchange.outcome = exchange.mode
    if done.carried is not None:
        exchange.compacted = done.carried.compacted
    if exchange.mode == "enforce":
        exchange.outcome = "compacted" if exchange.compacted and exchange.compacted.decisions else "unchanged"
    return done


async def _is_far_below(call: Call, uncounted_bytes: int) -> bool:
    """Whether a request that would take long to count is surely, or very likely, left as it is."""
    if call.exchange.mode != "enforce" or uncounted_bytes <= INLINE_BYTES:
        return False
    started = time.monotonic()
    glance = partial(call.compactor.is_far_below, call.chat, call.policy)
    in_thread = len(call.chat.body) > GLANCE_BYTES or len(call.chat.raws) > MANY_MESSAGES
    leave = await run_work(glance, in_thread=in_thread)
    call.services.recorder.record_overhead("glance", started)
    return leave


@contextmanager
def _fail_open(services: Services, exchange: Exchange, phase: str) -> Iterator[None]:
    """The one broad `except`: whatever breaks within, the request goes on without it, and the fault is counted."""
    exchange.phase = phase
    try:
        yield
    except (UndecodableError, LimitExceededError):
        raise
    except Exception as error:  # noqa: BLE001 - the Law
        services.recorder.record_fault(exchange, error)


async def _plan_and_carry_out(call: Call, uncounted_bytes: int) -> Carried:
    exchange, chat, compactor = call.exchange, call.chat, call.compactor
    started = time.monotonic()
    large = len(chat.body) > LARGE_BODY_BYTES or len(chat.raws) > MANY_MESSAGES
    in_thread = large or uncounted_bytes > INLINE_BYTES
    planned: Planned = await run_work(partial(compactor.plan, chat, call.policy), in_thread=in_thread)
    call.services.recorder.record_overhead("plan", started)
    exchange.phase = "summary"
    return await carry_out(call, planned, in_thread=in_thread)


def _describe_excess(error: LimitExceededError) -> str:
    done = (
        ", ".join(f"{decision.rule} saved {decision.saved_tokens}" for decision in error.decisions) or "nothing helped"
    )
    # OpenAI's own wording, which clients look for.
    return (
        f"This model's maximum context length is {error.limit} tokens (the completion's reserve taken off)."
        f" However, your messages resulted in {error.tokens} tokens after compaction ({done})."
        " Please reduce the length of the newest messages, or of what is always kept:"
        " system messages, tools, the first user message."
    )


async def _count_answer(services: Services, settings: PolicyConfig, tap: ResponseTap, exchange: Exchange) -> None:
    """The completion's tokens: the upstream's own figure, else ours."""
    usage = tap.usage
    exchange.reported_prompt_tokens = usage.prompt_tokens if usage else None
    if usage is not None and usage.completion_tokens is not None:
        exchange.completion_tokens, exchange.completion_source = max(usage.completion_tokens, 0), "upstream"
        return
    compactor = await services.compactors.get(settings, exchange.model)
    work = partial(tap.count_completion, compactor.count)
    tokens = await run_work(work, in_thread=tap.text_chars > INLINE_BYTES)
    base_url = services.config.upstream_for(settings.upstream).base_url
    facts = services.models.recall(ModelName(base_url, exchange.model, settings.count))
    exchange.completion_tokens = round(facts.ratio * tokens)
    exchange.completion_source = "estimated"
