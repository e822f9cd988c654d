"""What an answer tells: how many tokens the model read and wrote, and what of the prompt it had read before."""

from functools import partial

from proxy.compaction.offload import INLINE_BYTES, MANY_MESSAGES, run_work
from proxy.config.schema import PolicyConfig
from proxy.exchange.record import Exchange
from proxy.exchange.services import Services
from proxy.exchange.summary import Call, Carried
from proxy.state.models.calibration import Report
from proxy.state.models.lessons import Sent
from proxy.state.models.records import ModelName
from proxy.wire.tap import Tap
from rules.conversation import Message


async def observe(call: Call, carried: Carried) -> None:
    """Learn from what the upstream reports how its tokens compare with ours, and see what it had read before."""
    exchange = call.exchange
    sent = carried.compacted.forwarded if exchange.mode == "enforce" else carried.planned.original
    if exchange.reported_prompt_tokens and all(map(_is_read_by_all, sent.messages)):
        limit = call.policy.model_limit_tokens(call.chat.max_tokens)
        reported, cached = exchange.reported_prompt_tokens, exchange.reported_cached_tokens
        report = Report(sent.tokens, reported, limit, call.believed_tokens, cached)
        call.services.models.observe(call.model, report)
    if exchange.mode == "enforce":
        await _observe_prefix(call, carried)


def describe_sent(call: Call, carried: Carried) -> Sent:
    """What a refused request was, as we count it."""
    forwarded = carried.compacted.forwarded
    return Sent(forwarded.tokens, call.chat.max_tokens, is_text=all(map(_is_read_by_all, forwarded.messages)))


async def count_answer(services: Services, settings: PolicyConfig, tap: Tap, exchange: Exchange) -> None:
    """The completion's tokens: the upstream's own figure, else ours."""
    usage = tap.usage
    exchange.reported_prompt_tokens = usage.prompt_tokens if usage else None
    exchange.reported_cached_tokens = usage.cached_tokens if usage else 0
    if usage is not None and usage.completion_tokens is not None:
        exchange.completion_tokens, exchange.completion_source = usage.completion_tokens, "upstream"
        exchange.streamed_tokens = tap.find_sent_tokens(usage.completion_tokens)
        return
    compactor = await services.compactors.get(settings, exchange.model)
    work = partial(tap.count_completion, compactor.count)
    tokens = await run_work(work, in_thread=tap.text_chars > INLINE_BYTES)
    base_url = services.config.upstream_for(settings.upstream).base_url
    facts = services.models.recall(ModelName(base_url, exchange.model, settings.count))
    exchange.completion_tokens = exchange.streamed_tokens = round(facts.ratio * tokens)
    exchange.completion_source = "estimated"


def _is_read_by_all(message: Message) -> bool:
    """Whether what a message costs is for the vocabulary to say: no image, and no reasoning, which servers may drop."""
    return not message.media and not message.has_reasoning


async def _observe_prefix(call: Call, carried: Carried) -> None:
    """See how much of the prompt the upstream had read before."""
    hashes, forwarded = carried.planned.plan.hashes, carried.compacted.forwarded
    client = f"{call.summariser.client_id} {hash(call.chat.model)}"  # each model has a cache of its own
    work = partial(call.services.watch.observe, client, hashes, forwarded, call.chat.fixed)
    call.exchange.prefix_kept = await run_work(work, in_thread=len(hashes) > MANY_MESSAGES)
