"""The text that a plan needs: found, put off, or waited for; and the next one, ahead of time.

Law: a request waits only if it fits the window in no other way. One summary for one request at most.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from aiohttp import web

from proxy.compaction.compactor import Compacted, Compactor, Planned
from proxy.compaction.offload import run_bounded, run_work
from proxy.config.schema import PolicyConfig, UpstreamConfig
from proxy.exchange.record import Exchange
from proxy.exchange.services import Services
from proxy.exchange.waiting import wait_aloud
from proxy.http.client import target_url
from proxy.http.headers import AFFINITY_HEADERS, SUMMARY_HEADERS, Headers, drop_hop_by_hop, read_headers
from proxy.state.models.records import ModelName
from proxy.state.summaries.summariser import Inline, Summariser, Task
from proxy.wire.chat.request import ChatRequest
from rules.policy import OnExceeded, Policy
from rules.summary.request import EXCERPTS_TOKENS, PROMPT_TOKENS, Summary, SummaryRequest


@dataclass(frozen=True, slots=True)
class Call:
    """A chat request on its way, and what it is served with.

    `believed_tokens` is the window that is configured, or found, or assumed, whatever refusals have taught.
    """

    services: Services
    request: web.BaseRequest
    chat: ChatRequest
    settings: PolicyConfig
    exchange: Exchange
    compactor: Compactor
    policy: Policy
    believed_tokens: int
    model: ModelName
    summariser: Summariser


@dataclass(frozen=True, slots=True)
class Carried:
    """A plan carried out, and the text that is to be written once the request is on its way."""

    planned: Planned
    compacted: Compacted
    later: SummaryRequest | None


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The plan to carry out, and its text. The text that is `later` is to be written for a request to come."""

    planned: Planned
    text: Summary | None
    later: SummaryRequest | None = None


async def make_call(
    services: Services, request: web.BaseRequest, chat: ChatRequest, settings: PolicyConfig, exchange: Exchange
) -> Call:
    """A call, what is known of its model, and whom to ask for its summaries."""
    label = services.recorder.label(exchange)
    compactor = await services.compactors.get(settings, chat.model)
    upstream = services.config.upstream_for(settings.upstream)
    model = ModelName(upstream.base_url, chat.model, settings.count)
    facts = await services.models.look_up(model, label)
    if settings.context_window == "auto":
        services.models.seek_windows(upstream, _find_credential_headers(request, upstream))
    policy = settings.to_policy(
        services.config.prices.to_prices(), token_ratio=facts.ratio, window_tokens=facts.window_tokens
    )
    believed_tokens = policy.context_window
    policy = facts.correct_policy(policy, is_configured=settings.context_window != "auto")
    summariser = _choose_summariser(services, request, chat, settings, label)
    return Call(services, request, chat, settings, exchange, compactor, policy, believed_tokens, model, summariser)


async def carry_out(call: Call, planned: Planned, *, in_thread: bool) -> Carried:
    """The planned request with the text that it needs.

    If that has not been written yet, the request goes out as the one before it did, as long as the window holds it
    together with the completion that it asks for; else it waits. Raises LimitExceededError where the policy refuses,
    UndecodableError where the body defies splicing.
    """
    exchange, recorder = call.exchange, call.services.recorder
    chosen = _Chosen(planned, None, planned.plan.prefetch)
    if planned.plan.request is not None and exchange.mode == "enforce":
        started = time.monotonic()
        chosen = await _choose_text(call, planned, planned.plan.request)
        recorder.record_overhead("summary", started)
    exchange.phase, started = "apply", time.monotonic()
    writes_digest = chosen.planned.plan.window.cut is not None and chosen.text is None
    work = partial(call.compactor.apply, chosen.planned, chosen.text)
    compacted = await run_bounded(work, in_thread=in_thread or writes_digest)
    recorder.record_overhead("apply", started)
    return Carried(chosen.planned, compacted, chosen.later)


def write_ahead(call: Call, carried: Carried) -> None:
    """Have the text written in the background that the next cut needs."""
    client, sliding = call.summariser.client_id, call.services.sliding
    if carried.later is not None and not sliding.slides(client, carried.planned.plan):
        inline = _write_inline(call, carried.later, carried.planned, carried.compacted)
        if call.services.summaries.prefetch(_make_task(call, carried.later, inline)):
            sliding.note(client, carried.later)


async def _choose_text(call: Call, planned: Planned, wanted: SummaryRequest) -> _Chosen:
    """The text that is there; else the plan as it was before; else the text waited for."""
    services, summariser = call.services, call.summariser
    text = await services.summaries.find(wanted, summariser)
    if text is not None:
        services.recorder.metrics.summaries.labels(summariser.label, "hit").inc()
        services.sliding.use(summariser.client_id, wanted)
        return _Chosen(planned, text, planned.plan.prefetch)
    # Where nobody is going to write it, nothing is gained by putting the cut off.
    paused = services.summaries.is_paused(summariser) and not services.summaries.is_under_way(wanted, summariser)
    if not wanted.asks_model or paused or services.sliding.slides(summariser.client_id, planned.plan):
        task = replace(_make_task(call, wanted), may_ask=False)
        return _Chosen(planned, await services.summaries.get(task), planned.plan.prefetch)
    earlier, inline = await _put_off(call, planned), None
    if earlier is not None:
        if earlier.planned.plan.reserved_tokens <= planned.plan.fitting:
            return replace(earlier, later=wanted)
        # A summary may be shorter than its reserve, and results like others are shorter still.
        phase, call.exchange.phase = call.exchange.phase, "apply"
        work = partial(call.compactor.apply, earlier.planned, earlier.text)
        compacted = await run_work(work, in_thread=True)
        call.exchange.phase = phase
        if compacted.forwarded.tokens <= planned.plan.fitting:
            return replace(earlier, later=wanted)
        inline = _write_inline(call, wanted, earlier.planned, compacted)
    return _Chosen(planned, await _wait(call, wanted, inline))


async def _wait(call: Call, wanted: SummaryRequest, inline: Inline | None) -> Summary:
    """The text, written while the request waits; asked inline where that is behind what the request before was."""
    services = call.services
    services.sliding.note(call.summariser.client_id, wanted)
    text = services.summaries.get(_make_task(call, wanted, inline))
    # Only who asked for a stream knows what to do with comments.
    return await (wait_aloud(call.request, call.exchange, text) if call.chat.stream else text)


async def _put_off(call: Call, planned: Planned) -> _Chosen | None:
    """The plan without its last cuts, back to one whose text is there, and that text; None where nothing was cut.

    The cut before the last may still be waiting for its text, too: then the prefix is the one before that.
    """
    plan, text = planned.plan.put_off(), None
    while plan is not None and plan.request is not None:
        text = await call.services.summaries.find(plan.request, call.summariser)
        if text is not None:
            break
        plan = plan.put_off()
    if plan is None:
        return None
    policy = replace(planned.policy, on_exceeded=OnExceeded.FORWARD)
    return _Chosen(replace(planned, plan=plan, policy=policy), text)


def _make_task(call: Call, wanted: SummaryRequest, inline: Inline | None = None) -> Task:
    return Task(wanted, call.summariser, call.compactor.count, inline)


def _write_inline(call: Call, wanted: SummaryRequest, planned: Planned, compacted: Compacted) -> Inline | None:
    """The question behind what was forwarded; None where the transcript must be written out."""
    settings = call.settings.summary
    prefix = planned.plan.find_prefix(compacted.forwarded, wanted.at)
    if settings.upstream is not None or prefix is None:
        return None
    if settings.model not in {None, call.chat.model}:
        return None  # another model's prompt cache knows nothing of this
    tokens = compacted.forwarded.fixed_tokens + sum(message.tokens for message in prefix) + PROMPT_TOKENS
    tokens += EXCERPTS_TOKENS if wanted.pruned else 0
    if tokens > planned.policy.limit_tokens(ceil(wanted.max_tokens * planned.policy.token_ratio)):
        return None
    return Inline(partial(call.compactor.write_inline, call.chat, prefix, wanted), tokens)


def _find_credential_headers(request: web.BaseRequest, upstream: UpstreamConfig) -> Headers:
    """The client's credential headers; none for an upstream that has a key of its own."""
    return [] if upstream.api_key is not None else _pick_headers(request, SUMMARY_HEADERS)


def _pick_headers(request: web.BaseRequest, names: frozenset[str]) -> Headers:
    headers = drop_hop_by_hop(read_headers(request.raw_headers))
    return [item for item in headers if item[0].lower() in names]


def _choose_summariser(
    services: Services, request: web.BaseRequest, chat: ChatRequest, policy: PolicyConfig, label: str
) -> Summariser:
    """Whom to ask: with the client's own credential, unless the upstream has a key of its own."""
    config, settings = services.config, policy.summary
    own = settings.upstream is None
    upstream = config.upstream_for(policy.upstream if own else settings.upstream)
    model = settings.model or chat.model
    asked = config.policy_for(settings.model) if settings.model else policy
    facts = services.models.recall(ModelName(upstream.base_url, model, asked.count))
    numbers = asked.to_policy(config.prices.to_prices(), token_ratio=facts.ratio, window_tokens=facts.window_tokens)
    numbers = facts.correct_policy(numbers, is_configured=asked.context_window != "auto")
    headers = [*_find_credential_headers(request, upstream), *_pick_headers(request, AFFINITY_HEADERS)] if own else []
    return Summariser(
        upstream=upstream,
        url=target_url(upstream, request.raw_path if own else "/v1/chat/completions", is_api=True),
        headers=tuple(headers),
        secret=services.tenancy.find_secret(drop_hop_by_hop(read_headers(request.raw_headers))),
        model=model,
        max_tokens_key="max_tokens" if settings.model else chat.max_tokens_key,
        window_tokens=numbers.limit_tokens(settings.max_tokens),
        token_ratio=facts.ratio,
        label=label,
        settings=settings,
    )
