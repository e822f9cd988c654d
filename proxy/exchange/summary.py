"""Gets the summary that a plan needs, or puts the cut off, or waits. Also starts the next summary ahead of time.

Law: a request waits only if it fits the window in no other way, or shortly at a threshold that somebody has set. One
request causes at most one summary.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from math import ceil, inf
from typing import TypeVar

import msgspec
from msgspec import structs
from multidict import CIMultiDict

from trimtab.proxy.account.recorder import Phases, fail_open
from trimtab.proxy.compaction.compactor import Compacted, Planned
from trimtab.proxy.compaction.offload import weigh_known
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.exchange.arrival import Caller
from trimtab.proxy.exchange.attempt import Call, Chosen, Prepared, add_key
from trimtab.proxy.exchange.early_answer import keep_alive_while
from trimtab.proxy.exchange.route import PROVIDER_NOTE, place
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.http.credentials import find_query_keys, keep_credentials
from trimtab.proxy.http.headers import Headers, keep_for_session, request_headers
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.models.discovery import FEW_SLOTS
from trimtab.proxy.models.model_policy import ModelView, name_model
from trimtab.proxy.summaries.calls import Payer
from trimtab.proxy.summaries.service import SLIDING
from trimtab.proxy.summaries.summariser import REASONING_FACTOR, Apart, Inline, Summariser, Task
from trimtab.proxy.telemetry.ledger import UsedSummary
from trimtab.proxy.wire.answering import ProviderNote
from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.dialects import DEFAULT
from trimtab.proxy.wire.routing import MESSAGES, replace_deployment
from trimtab.rules.conversation import count_leading
from trimtab.rules.summary.handoff import read_given
from trimtab.rules.summary.prompts import fit_inline
from trimtab.rules.summary.request import Summary, SummaryRequest, make_digest
from trimtab.rules.window.state import ColdCut

T = TypeVar("T")
MOST_SYSTEM_SHARE = 3 / 4  # Of a question's room; longer ones are left out. Chosen: the transcript needs the rest.
THRESHOLD_WAIT_SECONDS = 5.0
"""The longest wait for a summary at a threshold that somebody has set, if the request would fit without the cut.

Chosen: a summary that was asked for ahead is there by then, and a person in a chat still bears it.
"""


async def choose_text(services: Services, call: Call, planned: Planned, reply: Reply, phases: Phases) -> Chosen:
    """Choose the plan to carry out, and get its summary.

    If the summary is not written yet, the cut is put off while the request fits the window together with the completion
    that it asks for, and stays within a soft limit of the policy. At a threshold that somebody has set, the request
    waits before that for THRESHOLD_WAIT_SECONDS. If it does not fit, it waits as long as it may. Raises
    LimitExceededError and UndecodableError.
    """
    plan = planned.plan
    summariser = choose_summariser(services, call)
    if plan.request is None or call.route.target.mode != "enforce":
        return Chosen(planned, None, plan.prefetch, summariser)
    begun = phases.begin("summary")
    chosen = await _Choice(services, call, summariser, reply, phases).choose(planned, plan.request)
    chosen = _tell_digest(services, call, summariser, chosen)
    phases.end(begun)
    return chosen


def _tell_digest(services: Services, call: Call, summariser: Summariser, chosen: Chosen) -> Chosen:
    """The choice, with the reason for a digest if a model's summary was wanted. The session is told of."""
    plan, text = chosen.planned.plan, chosen.text
    if text is None or plan.request is None or call.arrival.caller is not None:
        return chosen
    fallen = services.summaries.fallen
    if text.by_model:
        fallen.recover(call.session)
    if text.by_model or not plan.request.asks_model or not summariser.waits:
        return chosen
    slides = services.sliding.slides(summariser.client_id, plan)
    reason = SLIDING if slides else services.summaries.tell_failure(summariser)
    model = call.route.target.shown_model
    return structs.replace(chosen, instead=fallen.note(call.session, summariser.payer.label, model, reason))


async def find_text(services: Services, call: Call, planned: Planned) -> Chosen:
    """The plan that a request would be forwarded with now, and its text. No model is asked, and nothing is stored.

    It is what `choose_text` would choose. If that would wait for a summary, the digest stands for the summary. Raises
    LimitExceededError, UndecodableError and BusyError.
    """
    summariser, wanted = choose_summariser(services, call), planned.plan.request
    if wanted is None or call.route.target.mode != "enforce":
        return Chosen(planned, summariser=summariser)
    return await _Choice(services, call, summariser, None, Phases("count")).find(planned, wanted)


def name_summary(chosen: Chosen, compacted: Compacted) -> UsedSummary | None:
    """The stored summary in a compacted request; None if no cut was carried out, or its text is not stored."""
    wanted, summariser = chosen.planned.plan.request, chosen.summariser
    if chosen.text is None or wanted is None or summariser is None:
        return None
    kind = "summarise" if chosen.text.by_model else "digest"
    cut = next((decision for decision in compacted.decisions if decision.rule == kind), None)
    return None if cut is None else UsedSummary(summariser.name_summary(wanted.key), kind, cut.messages, chosen.instead)


def write_ahead(services: Services, call: Call, chosen: Chosen, compacted: Compacted) -> None:
    task = _prepare_ahead(services, call, chosen, compacted, "background")
    if task is not None and services.summaries.prefetch(task):
        services.sliding.note(task.summariser.client_id, task.request)


def write_meanwhile(services: Services, attempt: Prepared) -> None:
    """Have the next summary written while no request comes, behind the session's own cached prompt or not at all."""
    task = _prepare_ahead(services, attempt.call, attempt.chosen, attempt.compacted, "idle")
    if task is None or task.inline is None:
        return

    async def write() -> None:
        if await services.summaries.write_meanwhile(task):
            services.sliding.note(task.summariser.client_id, task.request)

    services.lifecycle.do_meanwhile(write)


def _prepare_ahead(services: Services, call: Call, chosen: Chosen, compacted: Compacted, when: str) -> Task | None:
    """The task of writing the summary of the next cut; None if there is none, or not at this time."""
    later, summariser = chosen.later, chosen.summariser
    if later is None or summariser is None or summariser.when != when:
        return None
    if services.sliding.slides(summariser.client_id, chosen.planned.plan):
        return None
    inline = _write_inline(call, summariser, later, chosen.planned, compacted)
    return make_task(call, summariser, later, chosen.planned, inline)


class _Choice(msgspec.Struct, frozen=True):
    """Chooses the summary for one request. `reply`: None if no client waits for an answer of the model."""

    services: Services
    call: Call
    summariser: Summariser
    reply: Reply | None
    phases: Phases

    async def choose(self, planned: Planned, wanted: SummaryRequest) -> Chosen:
        """Use a stored summary; else put the cut off; else wait for the summary."""
        summaries, sliding, client_id = self.services.summaries, self.services.sliding, self.summariser.client_id
        text, caller = await summaries.find(wanted, self.summariser), self.call.arrival.caller
        if text is None and caller is not None and wanted.asks_model and caller.summary == "return":
            return Chosen(planned, await self._take_given(wanted, caller), wanted, self.summariser)
        if text is not None:
            self.services.recorder.metrics.summaries[self.summariser.payer.tell_label(), "hit"] += 1
            sliding.use(client_id, wanted)
            return Chosen(planned, text, planned.plan.prefetch, self.summariser)
        slides = sliding.slides(client_id, planned.plan)
        if slides:
            sliding.note(client_id, wanted)  # the watch must see each of them, or it would lose track of the window
        if slides or not self._may_be_written(wanted):
            task = structs.replace(make_task(self.call, self.summariser, wanted, planned), may_ask=False)
            return Chosen(planned, await summaries.get(task), planned.plan.prefetch, self.summariser)
        earlier, inline = await self.put_off(planned), None
        if earlier is not None:
            excess = await self._find_excess(earlier, planned.plan.fitting)
            if excess is None:
                return await self._wait_at_threshold(earlier, wanted, planned) or structs.replace(earlier, later=wanted)
            inline = _write_inline(self.call, self.summariser, wanted, earlier.planned, excess)
        if self.summariser.settings.wait_seconds == 0:
            # A call under way may go on. But the digest used now is stored and stays, so no new call is made.
            task = structs.replace(make_task(self.call, self.summariser, wanted, planned), may_ask=False)
            return Chosen(planned, await summaries.get(task), planned.plan.prefetch, self.summariser)
        return Chosen(planned, await self._wait(wanted, planned, inline), None, self.summariser)

    async def find(self, planned: Planned, wanted: SummaryRequest) -> Chosen:
        """What `choose` would choose. A digest stands for a summary that is not stored, and is not stored either."""
        plan, call, summaries = planned.plan, self.call, self.services.summaries
        text = await summaries.find(wanted, self.summariser)
        if text is not None:
            return Chosen(planned, text, summariser=self.summariser)
        if self._may_be_written(wanted) and not self.services.sliding.slides(self.summariser.client_id, plan):
            # Without `max_tokens`, the completion is taken to need the reserve: a real request asks for one.
            fitting = plan.fitting if call.request.max_tokens else min(plan.fitting, plan.limit)
            earlier = await self.put_off(planned)
            if earlier is not None and await self._find_excess(earlier, fitting) is None:
                return earlier
        base = await summaries.find_base(wanted, self.summariser)
        work = partial(make_digest, wanted, base=base, count=call.compactor.count)
        digest = await self.services.workers.run(call.lane, work, size_bytes=weigh_known(len(call.request.body)))
        return Chosen(planned, Summary(digest, by_model=False))

    async def _take_given(self, wanted: SummaryRequest, caller: Caller) -> Summary | None:
        """The summary that the caller has got from a model, if it gives one for this cut; it is kept."""
        text = caller.texts.get(self.summariser.name_summary(wanted.key), "")
        note = await asyncio.to_thread(read_given, text) if text else ""
        summary = Summary(note, by_model=True)
        return await self.services.summaries.keep(wanted, self.summariser, summary) if note else None

    def _may_be_written(self, wanted: SummaryRequest) -> bool:
        """Whether a model may write this summary soon. If not, putting the cut off gains nothing."""
        if (caller := self.call.arrival.caller) is not None and caller.summary != "ask":
            return False
        summaries = self.services.summaries
        if not self.summariser.waits:
            return False
        is_paused = summaries.is_paused(self.summariser) and not summaries.is_under_way(wanted, self.summariser)
        return wanted.asks_model and (not is_paused or summaries.is_busy(self.summariser))

    async def _find_excess(self, earlier: Chosen, fitting: int) -> Compacted | None:
        """What would be forwarded with an earlier plan, if that is more than `fitting`; None if it fits."""
        plan = earlier.planned.plan
        if plan.cold.get(plan.stop) is ColdCut.NOW:  # who asks for a cut waits for its summary
            return await self._apply(earlier)
        if plan.reserved_tokens <= fitting:
            return None
        # The plan's size is an upper bound: the summary may be shorter, and dedupe shortens results.
        compacted = await self._apply(earlier)
        return compacted if compacted.forwarded.tokens > fitting else None

    async def _apply(self, chosen: Chosen) -> Compacted:
        before, self.phases.current = self.phases.current, "apply"  # its time is that of the surrounding phase
        work = partial(self.call.compactor.apply, chosen.planned, chosen.text)
        size_bytes = weigh_known(len(self.call.request.body))
        compacted = await self.services.workers.run(self.call.lane, work, size_bytes=size_bytes)
        self.phases.current = before
        return compacted

    async def _wait_at_threshold(self, earlier: Chosen, wanted: SummaryRequest, planned: Planned) -> Chosen | None:
        """The cut at a threshold that somebody has set, if its summary is there in time; None to put the cut off."""
        if not planned.policy.cuts_at_threshold or self.summariser.settings.wait_seconds == 0 or self.reply is None:
            return None
        inline = _write_inline(self.call, self.summariser, wanted, earlier.planned, await self._apply(earlier))
        self.services.sliding.note(self.summariser.client_id, wanted)
        task = make_task(self.call, self.summariser, wanted, planned, inline)
        # Without comments: they would begin a stream with status 200 just before the request goes out without the cut.
        text: Summary | None = None
        with fail_open(self.services.recorder, self.call.arrival.request_id, "summary"):
            text = await self.services.summaries.write(task, THRESHOLD_WAIT_SECONDS)
        return None if text is None else Chosen(planned, text, None, self.summariser)

    async def _wait(self, wanted: SummaryRequest, planned: Planned, inline: Inline | None) -> Summary:
        """Wait until the summary is written; `inline` asks after the previous request's prefix if that is possible."""
        self.services.sliding.note(self.summariser.client_id, wanted)
        text = self.services.summaries.get(make_task(self.call, self.summariser, wanted, planned, inline))
        return await (text if self.reply is None else wait_for(self.services, self.call, self.reply, text))

    async def put_off(self, planned: Planned) -> Chosen | None:
        """The plan without its last cuts, back to one whose summary is stored; None if nothing was cut."""
        plan, text = planned.plan.put_off(), None
        while plan is not None and plan.request is not None:
            text = await self.services.summaries.find(plan.request, self.summariser)
            if text is not None:
                break
            plan = plan.put_off()
        if plan is None:
            return None
        return Chosen(structs.replace(planned, plan=plan), text, None, self.summariser)


async def wait_for(services: Services, call: Call, reply: Reply, work: Coroutine[None, None, T]) -> T:
    """The result of `work`. A client that asked for a stream gets comments meanwhile: only it can read them."""
    if not call.request.stream:
        return await work
    return await keep_alive_while(reply, call.arrival.request_id, services.patience, work)


def make_task(
    call: Call, summariser: Summariser, wanted: SummaryRequest, planned: Planned, inline: Inline | None = None
) -> Task:
    summariser = replace(summariser, payer=structs.replace(summariser.payer, session=call.session))
    return Task(
        _instruct(call, wanted, summariser),
        summariser,
        call.compactor.count,
        inline,
        _write_apart(call, summariser, planned),
    )


def _instruct(call: Call, wanted: SummaryRequest, summariser: Summariser) -> SummaryRequest:
    """The request with the operator's instructions, and with what was said when a cut was asked for."""
    said = (summariser.settings.instructions, call.words)
    return replace(wanted, instructions="\n".join(filter(None, said)))


def _write_inline(
    call: Call, summariser: Summariser, wanted: SummaryRequest, planned: Planned, compacted: Compacted
) -> Inline | None:
    """The question asked after the forwarded messages; None if the transcript must be sent as text instead."""
    prefix = planned.plan.find_prefix(compacted.forwarded, wanted.at)
    if call.route.settings.summary.upstream is not None or prefix is None:
        return None
    if summariser.model != call.route.target.model:
        return None  # another model does not share the prompt cache
    policy, answers = planned.policy, REASONING_FACTOR if summariser.is_reasoning else 1
    fitted = fit_inline(_instruct(call, wanted, summariser), prefix, policy, call.compactor.count, answers)
    if fitted is None:
        return None
    wanted, tokens = fitted
    room_tokens = policy.context_window - ceil(tokens * policy.token_ratio)
    request = replace(add_key(call, planned), breaks_past=planned.plan.breaks_past)
    provider, provided = summariser.provider, None
    if provider is not None:
        write = partial(summariser.codec.ask_provider, request, prefix, instructions=wanted.instructions)
        headers = (*compacted.headers, *(one for one in provider.headers if one not in compacted.headers))
        decode_note, counting = summariser.codec.decode_note, call.compactor.counting
        provided = Inline(write, tokens, headers, weigh=lambda note: sum(o.tokens for o in decode_note(note, counting)))
    write = partial(call.compactor.ask_behind, request, prefix, wanted)
    return Inline(write, tokens, compacted.headers, provided, room_tokens=room_tokens)


def _write_apart(call: Call, summariser: Summariser, planned: Planned) -> Apart | None:
    """The question as a request of the client's session; None if another upstream is asked, or if there is no room."""
    if call.route.settings.summary.upstream is not None:
        return None
    conversation = planned.plan.conversation
    leading = count_leading(conversation.messages)
    before = replace(conversation, messages=conversation.messages[:leading], origins=conversation.origins[:leading])
    tokens = sum(message.tokens for message in before.messages)
    if tokens > summariser.window_tokens * MOST_SYSTEM_SHARE:
        return None
    request = add_key(call, planned)
    return Apart(partial(request.codec.ask_behind, request, before, is_apart=True), tokens)


def choose_summariser(services: Services, call: Call) -> Summariser:
    """Choose upstream, models and credential for summaries: the client's own credential unless configured otherwise."""
    asked = call.route.settings.summary.model
    if asked is None or isinstance(asked, str):
        return _make_summariser(services, call, asked)
    first, *others = asked
    return _make_summariser(services, call, first, tuple(_make_summariser(services, call, model) for model in others))


def _make_summariser(
    services: Services, call: Call, model: str | None, others: tuple[Summariser, ...] = ()
) -> Summariser:
    """The summariser that asks a model; None for the request's own one."""
    config, settings = services.config, call.route.settings.summary
    own = settings.upstream is None
    codec = call.request.codec if own else DEFAULT  # another upstream may not know the client's dialect
    upstream = call.route.upstream if own else config.upstream_for(settings.upstream)
    max_tokens = call.view.policy.summary_max_tokens  # the size that the cut has reserved, whichever model writes
    arrival, asked_for = call.arrival, call.route.target
    view = call.view if own and model in {None, asked_for.model} else _view_other(services, call, model)
    if not own:
        keys = find_query_keys(arrival.target)
        url = place(upstream, codec, codec.path + (f"?{keys}" if keys else ""))
    elif model is not None:
        url = place(upstream, codec, replace_deployment(arrival.target, model))
    else:
        url = call.route.url or place(upstream, codec, arrival.target)
    label = partial(services.recorder.metrics.label_model, asked_for.model, asked_for.match)
    vouched = asked_for.vouched if view is call.view else ""
    is_reasoning = model is None and call.request.is_reasoning
    payer = Payer(view.price_list, arrival.tenant.client_name, "", label, vouched, asked_for.shown_model)
    return Summariser(
        upstream=upstream,
        url=url,
        codec=codec,
        find_headers=partial(_find_headers, arrival.end_to_end, upstream, codec, own=own),
        secret=arrival.tenant.secret,
        model=view.name.model,
        find_window_tokens=partial(find_question_tokens, view, max_tokens * (REASONING_FACTOR if is_reasoning else 1)),
        answer_tokens=int(view.policy.context_window // 2 / view.facts.ratio),
        settings=settings,
        token_ratio=view.facts.ratio,
        is_reasoning=is_reasoning,
        few_slots=own and (services.models.find_slots(call.view.name) or inf) <= FEW_SLOTS,
        provider=_find_provider(services, call) if own and model is None else None,
        payer=payer,
        others=others,
    )


def _find_provider(services: Services, call: Call) -> ProviderNote | None:
    """How the provider's own note is asked for; None if it is not, or if the upstream has refused one that was sent."""
    if call.route.settings.summary.by == "model" or call.arrival.caller is not None:
        return None
    is_refused = PROVIDER_NOTE in services.refused_additions.find(call.route.asked)
    return None if is_refused else call.request.codec.provider_note


def _find_headers(headers: Headers, upstream: UpstreamConfig, codec: Codec, *, own: bool) -> CIMultiDict[str]:
    """The headers of a question: at the request's own upstream all that belongs to its session, else its credential."""
    asked = keep_for_session(headers) if own else keep_credentials(headers)
    return request_headers(asked, upstream, identity=True, is_messages=codec.name == MESSAGES)


def find_question_tokens(view: ModelView, answer_tokens: int) -> int:
    """The most tokens of a question for a summary of `answer_tokens`, in our tokens."""
    asked_tokens = min(ceil(answer_tokens * view.facts.ratio), view.policy.context_window // 2)
    return view.policy.limit_tokens(asked_tokens)


def _view_other(services: Services, call: Call, model: str | None) -> ModelView:
    config, settings = services.config, call.route.settings
    asked = config.policy_for(model) if model else settings
    upstream = settings.upstream if settings.summary.upstream is None else settings.summary.upstream
    server = config.upstream_for(upstream)
    name = replace(
        name_model(config, asked, model or call.route.target.model, call.arrival.tenant),
        base_url=server.base_url,
    )
    return ModelView.of(config, asked, name, services.models.recall(name), server)
