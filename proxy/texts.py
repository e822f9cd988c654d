"""The text that a plan needs: found, put off, or waited for; and the next one, ahead of time.

Law: a request waits only where it fits the window in no other way. One summary for one request at most.
"""

import time
from dataclasses import dataclass, replace
from functools import partial

from aiohttp import web

from proxy.codecs.chat import ChatRequest
from proxy.compaction import Compacted, Compactor, Planned
from proxy.config import PolicyConfig
from proxy.exchange import Exchange
from proxy.services import Services
from proxy.summariser import Inline, Summariser, Task
from proxy.threads import run_work
from proxy.upstream import SUMMARY_HEADERS, drop_hop_by_hop, read_headers, target_url
from proxy.waiting import wait_aloud
from rules.policy import OnExceeded
from rules.summarise import EXCERPTS_TOKENS, PROMPT_TOKENS, Summary, SummaryRequest


@dataclass(frozen=True, slots=True)
class Call:
    """A chat request on its way, and what it is served with."""

    services: Services
    request: web.BaseRequest
    chat: ChatRequest
    settings: PolicyConfig
    exchange: Exchange
    compactor: Compactor


@dataclass(frozen=True, slots=True)
class Carried:
    """A plan carried out, and the text that is to be written once the request is on its way."""

    planned: Planned
    compacted: Compacted
    later: SummaryRequest | None


async def carry_out(call: Call, planned: Planned, *, in_thread: bool) -> Carried:
    """The planned request with the text that it needs.

    Where that has not been written yet, the request goes out as the one before it did, as long as it fits; then it
    waits. Raises LimitExceededError where the policy refuses, UndecodableError where the body defies splicing.
    """
    exchange, recorder = call.exchange, call.services.recorder
    text: Summary | None = None
    later = planned.plan.prefetch
    if planned.plan.request is not None and exchange.mode == "enforce":
        started = time.monotonic()
        planned, text, later = await _choose_text(call, planned, planned.plan.request)
        recorder.record_overhead("summary", started)
    exchange.phase, started = "apply", time.monotonic()
    writes_digest = planned.plan.window.cut is not None and text is None
    work = partial(call.compactor.apply, planned, text)
    compacted = await run_work(work, in_thread=in_thread or writes_digest)
    recorder.record_overhead("apply", started)
    return Carried(planned, compacted, later if exchange.mode == "enforce" else None)


def write_ahead(call: Call, carried: Carried) -> None:
    """Have the text written in the background that the next cut needs."""
    if carried.later is not None:
        call.services.summaries.prefetch(_make_task(call, carried.later, carried.planned, carried.compacted))


async def _choose_text(
    call: Call, planned: Planned, wanted: SummaryRequest
) -> tuple[Planned, Summary | None, SummaryRequest | None]:
    """The plan to carry out, its text, and the text to be written later."""
    services, summariser = call.services, choose_summariser(call)
    text = await services.summaries.find(wanted, summariser)
    if text is not None:
        services.sliding.use(summariser.client_id, wanted)
        return planned, text, planned.plan.prefetch
    if services.summaries.is_paused(summariser):
        wanted = replace(wanted, asks_model=False)  # nobody is going to write it: nothing is gained by waiting
    if wanted.asks_model:
        earlier = await _put_off(call, planned)
        if earlier is not None and earlier[0].plan.reserved_tokens <= planned.plan.limit:
            return *earlier, wanted
        text = await _wait(call, planned, wanted, earlier)
        return planned, text, None
    text = await services.summaries.get(_make_task(call, wanted))
    return planned, text, planned.plan.prefetch


async def _wait(
    call: Call, planned: Planned, wanted: SummaryRequest, earlier: tuple[Planned, Summary | None] | None
) -> Summary:
    """The text, written while the request waits; asked inline where `earlier` is what the request before was."""
    services, client = call.services, choose_summariser(call).client_id
    if services.sliding.slides(client, planned.plan):
        return await services.summaries.get(_make_task(call, replace(wanted, asks_model=False)))
    services.sliding.note(client, wanted)
    task = _make_task(call, wanted)
    if earlier is not None:
        compacted = await run_work(partial(call.compactor.apply, *earlier), in_thread=True)
        task = _make_task(call, wanted, earlier[0], compacted)
    work = services.summaries.get(task)
    # Only who asked for a stream knows what to do with comments.
    return await (wait_aloud(call.request, call.exchange, work) if call.chat.stream else work)


async def _put_off(call: Call, planned: Planned) -> tuple[Planned, Summary | None] | None:
    """The plan without its last cut, and its text; None where that has been lost, and with it the earlier prefix."""
    plan = planned.plan.put_off()
    if plan is None:
        return None
    text = None
    if plan.request is not None:
        text = await call.services.summaries.find(plan.request, choose_summariser(call))
        if text is None:
            return None
    policy = replace(planned.policy, on_exceeded=OnExceeded.FORWARD)
    return replace(planned, plan=plan, policy=policy), text


def _make_task(
    call: Call, wanted: SummaryRequest, planned: Planned | None = None, compacted: Compacted | None = None
) -> Task:
    """A summary to be written; inline where what is forwarded up to its cut can be asked about."""
    summariser = choose_summariser(call)
    inline = _write_inline(call, wanted, planned, compacted) if planned and compacted else None
    return Task(wanted, summariser, call.compactor.count, inline)


def _write_inline(call: Call, wanted: SummaryRequest, planned: Planned, compacted: Compacted) -> Inline | None:
    """How to write the body that asks behind what was forwarded; None where the transcript must be written out."""
    settings = call.settings.summary
    prefix = planned.plan.find_prefix(compacted.forwarded, wanted.at)
    if settings.request == "transcript" or settings.upstream is not None or prefix is None:
        return None
    if settings.model not in {None, call.chat.model}:
        return None  # another model's prompt cache knows nothing of this
    tokens = compacted.forwarded.fixed_tokens + sum(message.tokens for message in prefix) + PROMPT_TOKENS
    if tokens + (EXCERPTS_TOKENS if wanted.pruned else 0) > planned.policy.limit_tokens(wanted.max_tokens):
        return None
    return partial(call.compactor.write_inline, call.chat, prefix, wanted)


def choose_summariser(call: Call) -> Summariser:
    """Whom to ask: with the client's own credential, unless the upstream has a key of its own."""
    services, settings, chat = call.services, call.settings.summary, call.chat
    config = services.config
    own = settings.upstream is None
    upstream = config.upstream_for(call.settings.upstream if own else settings.upstream)
    headers = drop_hop_by_hop(read_headers(call.request.raw_headers))
    sends_credential = own and upstream.api_key is None
    asked = config.policy_for(settings.model) if settings.model else call.settings
    return Summariser(
        upstream=upstream,
        url=target_url(upstream, call.request.raw_path if own else "/v1/chat/completions", is_api=True),
        headers=tuple(item for item in headers if sends_credential and item[0].lower() in SUMMARY_HEADERS),
        secret=services.tenancy.find_secret(headers),
        model=settings.model or chat.model,
        max_tokens_key="max_tokens" if settings.model else chat.max_tokens_key,
        window_tokens=asked.to_policy(config.prices.to_prices()).limit_tokens(settings.max_tokens),
        label=services.recorder.label(call.exchange),
        settings=settings,
    )
