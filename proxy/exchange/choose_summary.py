"""The text that a plan needs: found, put off, or waited for; and the next one, ahead of time.

Law: a request waits only if it fits the window in no other way. One summary for one request at most.
"""

from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from proxy.compaction.compactor import Compacted, Planned
from proxy.compaction.offload import weigh_known
from proxy.exchange.call import Call, find_credentials_for
from proxy.exchange.early_answer import wait_aloud
from proxy.exchange.report import Phases
from proxy.exchange.services import Services
from proxy.http.client import target_url
from proxy.http.credentials import find_query_keys
from proxy.http.headers import AFFINITY_HEADERS
from proxy.http.relay import Reply
from proxy.state.models.model_policy import ModelView, name_model
from proxy.state.summaries.summariser import Inline, Summariser, Task
from proxy.wire.dialects import DEFAULT
from rules.summary.asking.prompts import EXCERPTS_TOKENS, PROMPT_TOKENS
from rules.summary.request import Summary, SummaryRequest


@dataclass(frozen=True, slots=True)
class Chosen:
    """The plan to carry out, and its text; None for the digest, or if it needs none.

    The text that is `later` is to be written once the request is on its way, for one to come. `summariser` is whoever
    writes texts for this request; None if it needs none.
    """

    planned: Planned
    text: Summary | None = None
    later: SummaryRequest | None = None
    summariser: Summariser | None = None


async def choose_text(services: Services, call: Call, planned: Planned, reply: Reply, phases: Phases) -> Chosen:
    """The planned request with the text that it needs.

    If that has not been written yet, the request goes out as the one before it did, as long as the window holds it
    together with the completion that it asks for; else it waits. Raises LimitExceededError and UndecodableError.
    """
    plan = planned.plan
    summariser = choose_summariser(services, call)
    if plan.request is None or call.route.target.mode != "enforce":
        return Chosen(planned, None, plan.prefetch, summariser)
    with phases.timed("summary"):
        return await _Choice(services, call, summariser, reply, phases).choose(planned, plan.request)


def write_ahead(services: Services, call: Call, chosen: Chosen, compacted: Compacted) -> None:
    """Have the text written in the background that the next cut needs."""
    later, summariser = chosen.later, chosen.summariser
    if later is None or summariser is None or services.sliding.slides(summariser.client_id, chosen.planned.plan):
        return
    inline = _write_inline(call, summariser, later, chosen.planned, compacted)
    if services.summaries.prefetch(make_task(call, summariser, later, inline)):
        services.sliding.note(summariser.client_id, later)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The choice of a text for one request."""

    services: Services
    call: Call
    summariser: Summariser
    reply: Reply
    phases: Phases

    async def choose(self, planned: Planned, wanted: SummaryRequest) -> Chosen:
        """The text that is there; else the plan as it was before; else the text waited for."""
        summaries, sliding, client_id = self.services.summaries, self.services.sliding, self.summariser.client_id
        text = await summaries.find(wanted, self.summariser)
        if text is not None:
            self.services.recorder.metrics.summaries.labels(self.summariser.label, "hit").inc()
            sliding.use(client_id, wanted)
            return Chosen(planned, text, planned.plan.prefetch, self.summariser)
        # If nobody is going to write it, nothing is gained by putting the cut off.
        paused = summaries.is_paused(self.summariser) and not summaries.is_under_way(wanted, self.summariser)
        slides = sliding.slides(client_id, planned.plan)
        if slides:
            sliding.note(client_id, wanted)  # else the window would slide past what the watch has seen
        if slides or paused or not wanted.asks_model:
            task = replace(self._make_task(wanted), may_ask=False)
            return Chosen(planned, await summaries.get(task), planned.plan.prefetch, self.summariser)
        earlier, inline = await self._put_off(planned), None
        if earlier is not None:
            if earlier.planned.plan.reserved_tokens <= planned.plan.fitting:
                return replace(earlier, later=wanted)
            # A summary may be shorter than its reserve, and results like others are shorter still.
            with self.phases.during("apply"):
                work = partial(self.call.compactor.apply, earlier.planned, earlier.text)
                size_bytes = weigh_known(len(self.call.request.body))
                compacted = await self.services.workers.run(self.call.lane, work, size_bytes=size_bytes)
            if compacted.forwarded.tokens <= planned.plan.fitting:
                return replace(earlier, later=wanted)
            inline = _write_inline(self.call, self.summariser, wanted, earlier.planned, compacted)
        if self.summariser.settings.wait_seconds == 0:
            # Whoever is writing it may go on: but what stands in now stays, so that nobody else is asked for it.
            task = replace(self._make_task(wanted), may_ask=False)
            return Chosen(planned, await summaries.get(task), planned.plan.prefetch, self.summariser)
        return Chosen(planned, await self._wait(wanted, inline), None, self.summariser)

    async def _wait(self, wanted: SummaryRequest, inline: Inline | None) -> Summary:
        """The text, written while the request waits; asked inline if that is behind what the request before was."""
        self.services.sliding.note(self.summariser.client_id, wanted)
        text = self.services.summaries.get(self._make_task(wanted, inline))
        # Only a client that asked for a stream knows what to do with comments.
        if not self.call.request.stream:
            return await text
        return await wait_aloud(self.reply, self.call.arrival.request_id, self.services.patience, text)

    async def _put_off(self, planned: Planned) -> Chosen | None:
        """The plan without its last cuts, back to one whose text is there, and that text; None if nothing was cut.

        The cut before the last may still be waiting for its text, too: then the prefix is the one before that.
        """
        plan, text = planned.plan.put_off(), None
        while plan is not None and plan.request is not None:
            text = await self.services.summaries.find(plan.request, self.summariser)
            if text is not None:
                break
            plan = plan.put_off()
        if plan is None:
            return None
        return Chosen(replace(planned, plan=plan), text, None, self.summariser)

    def _make_task(self, wanted: SummaryRequest, inline: Inline | None = None) -> Task:
        return make_task(self.call, self.summariser, wanted, inline)


def make_task(call: Call, summariser: Summariser, wanted: SummaryRequest, inline: Inline | None) -> Task:
    """A text to be written, with the operator's own words on it."""
    return Task(_instruct(wanted, summariser), summariser, call.compactor.count, inline)


def _instruct(wanted: SummaryRequest, summariser: Summariser) -> SummaryRequest:
    return replace(wanted, instructions=summariser.settings.instructions or "")


def _write_inline(
    call: Call, summariser: Summariser, wanted: SummaryRequest, planned: Planned, compacted: Compacted
) -> Inline | None:
    """The question behind what was forwarded; None if the transcript must be written out."""
    prefix = planned.plan.find_prefix(compacted.forwarded, wanted.at)
    if call.route.settings.summary.upstream is not None or prefix is None:
        return None
    if summariser.model != call.route.target.model:
        return None  # another model's prompt cache knows nothing of this
    tokens = compacted.forwarded.fixed_tokens + sum(message.tokens for message in prefix.messages) + PROMPT_TOKENS
    tokens += EXCERPTS_TOKENS if wanted.pruned else 0
    wanted = _instruct(wanted, summariser)
    tokens += call.compactor.count(wanted.instructions)
    if tokens > planned.policy.limit_tokens(ceil(wanted.max_tokens * planned.policy.token_ratio)):
        return None
    return Inline(partial(call.compactor.ask_behind, call.request, prefix, wanted), tokens)


def choose_summariser(services: Services, call: Call) -> Summariser:
    """Whom to ask: with the client's own credential, unless the upstream is to be shown another's, or none."""
    config, settings = services.config, call.route.settings.summary
    own = settings.upstream is None
    codec = call.request.codec if own else DEFAULT  # nothing says that the other upstream knows the client's dialect
    upstream = call.route.upstream if own else config.upstream_for(settings.upstream)
    max_tokens = call.view.policy.summary_max_tokens  # what the cut has reserved, whoever writes it
    view = call.view if own and settings.model in {None, call.route.target.model} else _view_other(services, call)
    arrival = call.arrival
    affinity = [item for item in arrival.end_to_end if own and item[0].lower() in AFFINITY_HEADERS]
    keys = find_query_keys(arrival.target)
    target = arrival.target if own else f"{codec.path}?{keys}" if keys else codec.path
    return Summariser(
        upstream=upstream,
        url=target_url(upstream, target, is_api=True),
        codec=codec,
        headers=(*find_credentials_for(upstream, arrival.end_to_end), *affinity),
        secret=arrival.tenant.secret,
        model=view.name.model,
        window_tokens=find_question_tokens(view, max_tokens),
        answer_tokens=int(view.policy.context_window // 2 / view.facts.ratio),
        label=call.label,
        settings=settings,
        token_ratio=view.facts.ratio,
        is_reasoning=settings.model is None and call.request.is_reasoning,
    )


def find_question_tokens(view: ModelView, answer_tokens: int) -> int:
    """What a question for a summary may have, for an answer of so many tokens, as we count."""
    asked_tokens = min(ceil(answer_tokens * view.facts.ratio), view.policy.context_window // 2)
    return view.policy.limit_tokens(asked_tokens)


def _view_other(services: Services, call: Call) -> ModelView:
    """The model that writes the summaries, if it is another one or at another upstream."""
    config, settings = services.config, call.route.settings
    asked = config.policy_for(settings.summary.model) if settings.summary.model else settings
    upstream = settings.upstream if settings.summary.upstream is None else settings.summary.upstream
    name = replace(
        name_model(config, asked, settings.summary.model or call.route.target.model, call.arrival.tenant),
        base_url=config.upstream_for(upstream).base_url,
    )
    return ModelView.of(config, asked, name, services.models.recall(name))
