"""A chat completion, from the client's bytes to the upstream's answer.

Law: the only broad `except` of the program stands here: a fault inside compaction forwards the original bytes, and
is counted.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TypeVar

from aiohttp import web

from proxy.codecs.chat import ChatRequest, read_damaged_request, read_request
from proxy.codecs.message import UndecodableError
from proxy.compaction import Compacted, Planned
from proxy.config import PolicyConfig
from proxy.errors import ContextExceededError, UnknownProfileError
from proxy.exchange import Exchange
from proxy.relay import relay_answer
from proxy.services import Services
from proxy.stream import ResponseTap
from proxy.summaries import Summariser
from proxy.upstream import (
    SUMMARY_HEADERS,
    drop_hop_by_hop,
    find_credential,
    read_headers,
    request_headers,
    target_url,
)
from rules.pipeline import LimitExceededError
from rules.summarise import Summary

INLINE_BYTES = 32 * 1024
"""More uncounted JSON than this is counted in a thread: counting takes 50 to 100 ms a megabyte."""
LARGE_BODY_BYTES = 1024 * 1024
"""A larger body is not even split on the loop."""
MANY_MESSAGES = 1000
"""A transcript of more is planned in a thread, however well it is known."""
PEEK_BYTES = 64 * 1024
_MODEL = re.compile(rb'"model"\s*+:\s*+"([^"\\]{0,256})"')

T = TypeVar("T")


async def serve_chat(services: Services, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
    """Serve a chat completion, compacted where that is called for."""
    body = await _read_body(request, services.config.limits.max_body_bytes)
    chat = await _read_chat(body) if isinstance(body, bytes) else None
    if chat is not None:
        settings = _choose_settings(services, request, chat.model, exchange)
        body = await _compact(services, request, chat, settings, exchange)
    else:
        # Not decoded, but its model still says whose upstream it is for, and whose credential it carries.
        settings = _choose_settings(services, request, _peek_model(body), exchange)
        exchange.outcome = "undecodable" if isinstance(body, bytes) else "too_large"
    upstream = services.config.upstream_for(settings.upstream)
    url = target_url(upstream, request.raw_path, is_api=True)
    headers = request_headers(read_headers(request.raw_headers), upstream, identity=True)
    if not isinstance(body, bytes) and "Content-Length" in request.headers:
        headers["Content-Length"] = request.headers["Content-Length"]
    outgoing = body if isinstance(body, bytes) else _chain(body, request)
    exchange.sent_at = time.monotonic()
    async with services.client.send("POST", url, headers, outgoing, upstream) as answer:
        is_stream = answer.content_type == "text/event-stream"
        tap = ResponseTap(is_stream=is_stream) if answer.status == 200 else None
        response = await relay_answer(request, answer, exchange.response_headers(), tap, exchange.relayed)
        if tap is not None:
            await _count_answer(services, settings, tap, exchange)
        return response


async def _read_body(request: web.BaseRequest, max_bytes: int) -> bytes | list[bytes]:
    """The whole body; its first pieces where it is larger than `max_bytes`."""
    pieces: list[bytes] = []
    size = 0
    announced = int(request.headers.get("Content-Length", "0"))
    async for piece in request.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if max(size, announced) > max_bytes:
            return pieces
    return b"".join(pieces)


async def _chain(pieces: list[bytes], request: web.BaseRequest) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    async for piece in request.content.iter_any():
        yield piece


def _peek_model(body: bytes | list[bytes]) -> str:
    """The model that a body names which is not decoded; the empty string where its beginning names none."""
    beginning = body if isinstance(body, bytes) else b"".join(body)
    found = _MODEL.search(beginning[:PEEK_BYTES])
    return found[1].decode("utf-8", "replace") if found else ""


async def _read_chat(body: bytes) -> ChatRequest | None:
    """The request split into messages; None where it is no chat request, and the upstream shall judge."""
    try:
        return await _run(partial(read_request, body), in_thread=len(body) > LARGE_BODY_BYTES)
    except UndecodableError:
        pass
    try:
        return await _run(partial(read_damaged_request, body), in_thread=len(body) > INLINE_BYTES)
    except UndecodableError:
        return None


async def _run(work: Callable[[], T], *, in_thread: bool) -> T:
    return await asyncio.to_thread(work) if in_thread else work()


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
) -> bytes:
    """The bytes to forward. Raises ContextExceededError where the policy refuses what cannot fit."""
    exchange.outcome = exchange.mode
    if exchange.mode == "off":
        return chat.body
    try:
        compacted = await _compact_by_rules(services, request, chat, settings, exchange)
    except UndecodableError:
        exchange.outcome = "undecodable"
        return chat.body
    except LimitExceededError as error:
        exchange.compacted = Compacted(chat.body, error.decisions, error.original_tokens, error.tokens, error.limit)
        if exchange.mode == "observe":
            return chat.body
        raise ContextExceededError(_describe_excess(error)) from error
    except Exception as error:  # noqa: BLE001 - the one broad except: whatever breaks here, the original goes out
        exchange.outcome = "failed_open"
        services.recorder.record_fault(exchange, error)
        return chat.body
    exchange.compacted = compacted
    if exchange.mode == "observe":
        return chat.body
    exchange.outcome = "compacted" if compacted.decisions else "unchanged"
    return compacted.body


async def _compact_by_rules(
    services: Services, request: web.BaseRequest, chat: ChatRequest, settings: PolicyConfig, exchange: Exchange
) -> Compacted:
    exchange.phase = "plan"
    compactor = services.compactor_for(settings)
    large = len(chat.body) > LARGE_BODY_BYTES or len(chat.raws) > MANY_MESSAGES
    in_thread = large or compactor.uncounted_bytes(chat) > INLINE_BYTES
    started = time.monotonic()
    planned: Planned = await _run(partial(compactor.plan, chat, settings), in_thread=in_thread)
    services.recorder.record_overhead("plan", started)
    exchange.phase, started = "summary", time.monotonic()
    summary: Summary | None = None
    wanted = planned.plan.request
    if wanted is not None and exchange.mode == "enforce":
        summariser = _choose_summariser(services, request, chat, settings, exchange)
        summary = await services.summaries.get(wanted, summariser, compactor.count)
        services.recorder.record_overhead("summary", started)
    exchange.phase, started = "apply", time.monotonic()
    writes_digest = planned.plan.window.cut is not None and summary is None
    work = partial(compactor.apply, planned, summary)
    compacted = await _run(work, in_thread=large or in_thread or writes_digest)
    services.recorder.record_overhead("apply", started)
    return compacted


def _choose_summariser(
    services: Services, request: web.BaseRequest, chat: ChatRequest, settings: PolicyConfig, exchange: Exchange
) -> Summariser:
    """Whom to ask: with the client's own credential, unless the upstream has a key of its own."""
    config = services.config
    own = settings.summary.upstream is None
    upstream = config.upstream_for(settings.upstream if own else settings.summary.upstream)
    headers = drop_hop_by_hop(read_headers(request.raw_headers))
    model = settings.summary.model or chat.model
    sends_credential = own and upstream.api_key is None
    window = config.policy_for(model).to_policy() if settings.summary.model else settings.to_policy()
    return Summariser(
        upstream=upstream,
        url=target_url(upstream, request.raw_path if own else "/v1/chat/completions", is_api=True),
        headers=tuple(item for item in headers if sends_credential and item[0].lower() in SUMMARY_HEADERS),
        credential=find_credential(headers),
        model=model,
        max_tokens_key="max_tokens" if settings.summary.model else chat.max_tokens_key,
        window_tokens=window.limit_tokens(settings.summary.max_tokens),
        label=services.recorder.label(exchange),
        settings=settings.summary,
    )


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
    count = services.compactor_for(settings).count
    work = partial(tap.count_completion, count)
    exchange.completion_tokens = await _run(work, in_thread=tap.text_chars > INLINE_BYTES)
    exchange.completion_source = "estimated"
