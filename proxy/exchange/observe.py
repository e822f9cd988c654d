"""What an answer tells: how many tokens the model read and wrote, and what of the prompt it had read before."""

from functools import partial

from proxy.compaction.compactor import Compacted, Planned
from proxy.compaction.offload import INLINE_BYTES, MANY_MESSAGES, run_work
from proxy.exchange.call import Call, Route, is_text_only
from proxy.exchange.compact import Attempt
from proxy.exchange.record import Answered
from proxy.exchange.services import Services
from proxy.http.headers import find_credentials
from proxy.state.models.calibration import Report as Sample
from proxy.state.models.view import name_model
from proxy.wire.tap import Tap


async def count_answer(services: Services, route: Route, tap: Tap) -> Answered:
    """The answer's tokens: the upstream's own figures, else ours."""
    usage = tap.usage
    prompt_tokens, cached_tokens = (usage.prompt_tokens, usage.cached_tokens) if usage else (None, 0)
    if usage is not None and usage.completion_tokens is not None:
        streamed_tokens = tap.find_sent_tokens(usage.completion_tokens)
        return Answered(prompt_tokens, cached_tokens, usage.completion_tokens, streamed_tokens=streamed_tokens)
    settings, model = route.settings, route.target.model
    compactor = await services.compactors.get(settings, model)
    work = partial(tap.count_completion, compactor.count)
    tokens = await run_work(work, in_thread=tap.text_chars > INLINE_BYTES)
    tokens = round(services.models.recall(name_model(services.config, settings, model)).ratio * tokens)
    return Answered(prompt_tokens, cached_tokens, tokens, is_estimated=True, streamed_tokens=tokens)


async def observe(services: Services, attempt: Attempt, answered: Answered) -> float | None:
    """Learn from what the upstream reports how its tokens compare with ours.

    The share of the prompt that the upstream had read before; None if that is not known.
    """
    call, chosen, compacted = attempt.call, attempt.chosen, attempt.compacted
    if call is None or chosen is None or compacted is None:
        return None
    if not call.route.target.is_secret:
        services.models.vouch_for(call.view.name)
    is_enforced = call.route.target.mode == "enforce"
    sent = compacted.forwarded if is_enforced else chosen.planned.original
    if answered.prompt_tokens and is_text_only(sent):
        believed_tokens, cached_tokens = call.view.believed_tokens, answered.cached_tokens
        sample = Sample(sent.tokens, answered.prompt_tokens, compacted.limit_tokens, believed_tokens, cached_tokens)
        services.models.observe(call.view.name, sample)
    return await _observe_prefix(services, call, chosen.planned, compacted) if is_enforced else None


async def _observe_prefix(services: Services, call: Call, planned: Planned, compacted: Compacted) -> float | None:
    """How much of the prompt the upstream had read before."""
    hashes, forwarded = planned.plan.hashes, compacted.forwarded
    # Whose cache it is the upstream knows by the credential, and each model has one of its own. The hash is keyed.
    client = f"{hash(find_credentials(call.arrival.end_to_end))} {hash(call.route.target.model)}"
    work = partial(services.watch.observe, client, hashes, forwarded, call.request.fixed)
    return await run_work(work, in_thread=len(hashes) > MANY_MESSAGES)
