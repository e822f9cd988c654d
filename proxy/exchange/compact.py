"""Compact a request; in mode `observe`, only find out what compaction would do.

Law: a fault inside compaction forwards the client's own bytes and is counted. Nothing is raised: the returned Attempt
says what happened. If no thread was free in time, a request is forwarded unchanged only if it surely needs no
compaction. What is added for the provider's prompt cache is a decision, and no rule's.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from msgspec import structs

from trimtab.proxy.account.recorder import Phases, fail_open
from trimtab.proxy.account.sessions import name_session, tells_compaction
from trimtab.proxy.compaction.compactor import (
    FindMatch,
    Planned,
    RefusedError,
    describe_excess,
    describe_refused,
    write_cost,
)
from trimtab.proxy.compaction.compactor import help_cache as add_help
from trimtab.proxy.compaction.offload import (
    LARGE_BODY_BYTES,
    MANY_MESSAGES,
    SMALL_BODY_BYTES,
    SMALL_MESSAGES,
    THREAD_BYTES,
    BusyError,
    Lane,
    weigh_known,
)
from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.attempt import (
    Attempt,
    Call,
    Chosen,
    Passed,
    Prepared,
    Refused,
    add_key,
)
from trimtab.proxy.exchange.cold import (
    PlanAgain,
    cut_at_cold_cache,
    cut_on_wish,
    find_answered,
    keep_marked,
    may_be_marked,
    name_cache,
)
from trimtab.proxy.exchange.route import Route, find_help
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.exchange.summary import choose_text, find_text, name_summary
from trimtab.proxy.http.errors import NO_THREAD_LEFT, ContextExceededError, OverloadedError, UnpairedToolCallsError
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.models.model_policy import ModelView
from trimtab.proxy.models.tokenizer import Prompt
from trimtab.proxy.recall import add_answers, declare, find_answers, find_head, name_outcome
from trimtab.proxy.telemetry.ledger import Ledger
from trimtab.proxy.wire.cache_help import Addition
from trimtab.proxy.wire.codec import Request, UndecodableError
from trimtab.rules.conversation import Conversation, Decision
from trimtab.rules.policy import Policy
from trimtab.rules.prefix import place_session
from trimtab.rules.results.pairing import describe_unpaired, find_unpaired
from trimtab.rules.window.room import HEAD_STEPS

FRAME_TOKENS = 64  # Most tokens that are not in a request's bytes. Chosen: above the largest frame in rules/tokens.
_OTHER_PART = re.compile(rb'"type"\s*+:\s*+"(?!(?:text|function)")')
"""Matches a content part that is not text."""
NOTHING_REFUSED = frozenset[Addition]()
OUTCOME = "cache_help"
"""The outcome of a request to which nothing else was done."""
WOULD_REFUSE = "mode enforce would refuse this request"


async def compact(
    services: Services, arrival: Arrival, route: Route, request: Request, reply: Reply, lane: Lane
) -> Attempt:
    """Make the first attempt. A client that waits long for a summary gets comments through its `reply`."""
    passes_count = request.codec.is_count and services.config.compaction.count_tokens == "passed"
    if route.target.mode == "off" or passes_count:
        return Passed("off" if route.target.mode == "off" else "passed")
    attempt: Attempt = Passed("failed_open")
    phases = Phases("plan")
    try:
        with fail_open(services.recorder, arrival.request_id, phases):
            refusals = services.refused_additions
            refused = refusals.find(route.asked) if refusals.kept else NOTHING_REFUSED
            helped = find_help(route, request, refused) if route.adds or refused else request
            call = await prepare_call(services, arrival, route, helped, lane)
            try:
                call = await _clean(services, call)
                call, planned, size_bytes = await _plan_standing(services, call, phases)
                if call.view.facts.reading.samples and await _have_counted(services, call, planned.original):
                    counted = await prepare_call(services, arrival, route, helped, lane)
                    call = structs.replace(call, view=counted.view, compactor=counted.compactor)
                    call, planned, size_bytes = await _plan_standing(services, call, phases)
                call = settle(call, planned.original, _name_session(services, call, planned))
                marks, wished = services.cold_cuts, services.config.compaction.command or route.compact_now is not None
                if marks.is_kept or route.keep or wished or marks.wishes.pending:
                    again = partial(_plan, services, phases=phases)
                    call, planned = await _apply_marks(services, call, planned, again, reply)
                unpaired = await _find_unpaired(services, call, request, planned)
                if unpaired is None:
                    attempt = await _carry_out_first(services, call, planned, reply, phases, size_bytes=size_bytes)
                    attempt = await help_cache(services, attempt) if call.request.cache.adds else attempt
                else:
                    attempt = Refused("enforce", unpaired, call)
            except BusyError:
                attempt = Refused("busy", refuse_or_pass(call))
            except RefusedError as error:
                attempt = _refuse(call, error)
    except UndecodableError as error:
        attempt = Passed("undecodable", fault=str(error))
    return attempt if attempt.seconds else structs.replace(attempt, seconds=phases.seconds)


def _name_session(services: Services, call: Call, planned: Planned) -> str:
    arrival, config = call.arrival, services.config.sessions
    names, model = services.session_names, call.route.target.model
    return name_session(names, config, arrival.named, arrival.tenant.id, model, planned)


async def _apply_marks(
    services: Services, call: Call, planned: Planned, again: PlanAgain, reply: Reply
) -> tuple[Call, Planned]:
    """The call and plan with what is marked on the session, and what is wished now. Raises as `_plan`."""
    route, marks = call.route, services.cold_cuts
    if route.keep or may_be_marked(services, call, planned):
        call, planned = await keep_marked(services, call, planned, again)
    if marks.is_kept:
        call, planned = await cut_at_cold_cache(services, call, planned, again, reply)
    if route.compact_now is not None or services.config.compaction.command or marks.wishes.pending:
        call, planned = await cut_on_wish(services, call, planned, again)
    return call, planned


async def prepare_call(services: Services, arrival: Arrival, route: Route, request: Request, lane: Lane) -> Call:
    settings, name = route.settings, route.name
    facts = await services.models.look_up(
        name, services.recorder.metrics.label_model(route.target.model, route.target.match)
    )
    compactor = await services.compactors.get(
        settings, name.model, arrival.tenant.id, facts.reading, facts.weights, size_bytes=len(request.body)
    )
    if settings.context_window == "auto":
        services.models.seek_windows(route.upstream, route.credentials, arrival.tenant.id)
    view = route.views[0] if route.views else None
    if view is None or view.facts is not facts or view.settings is not settings:
        view = ModelView.of(services.config, settings, name, facts, route.upstream)
        route.views[:] = [view]
    cold = services.cold_cuts.recall(arrival.tenant.id, name_cache(name)) if services.cold_cuts.is_used else {}
    kept = services.cold_cuts.kept
    keeps = kept.recall(arrival.tenant.id, name_cache(name)) if kept.has_any else ()
    return Call(
        arrival,
        route,
        request,
        compactor,
        view,
        lane,
        Ledger(),
        cold=cold,
        keeps=keeps,
        tells_compaction=tells_compaction(arrival.named, request),
    )


async def _have_counted(services: Services, call: Call, sent: Conversation) -> bool:
    """Whether the model's server counted the prompt itself, and it is counted otherwise from now on."""
    prompt = Prompt(sent, call.compactor.count, call.compactor.counting.costs.weights)
    return await services.models.measure(call.view.name, prompt, call.route.upstream, call.route.credentials)


async def _clean(services: Services, call: Call) -> Call:
    """The call without what must not be sent. Raises UndecodableError, BusyError."""
    is_answered_here = call.route.target.mode == "enforce" and call.arrival.caller is None
    if call.route.settings.recall == "tool" and is_answered_here:
        alone = call.route.settings.recall_without_tools
        add_tool = partial(declare, call.request, call.compactor.counting, without_tools=alone)
        call = await _change_request(services, call, add_tool)
    request, unsent = call.request, call.route.unsent
    may_drop = unsent.tools and any(request.fixed)
    if not may_drop and not request.codec.clean(request, unsent)[1]:
        return call
    return await _change_request(services, call, partial(call.compactor.clean, request, unsent))


async def _change_request(services: Services, call: Call, change: Callable[[FindMatch], Request]) -> Call:
    """The call with another request, which may go on with an earlier one. Raises as `change`, and BusyError."""
    work = partial(change, services.compactors.find_kept_bodies(call.arrival.tenant.id).find)
    size_bytes = 0 if _is_small(call) else await _weigh(services, call)
    return structs.replace(call, request=await services.workers.run(call.lane, work, size_bytes=size_bytes))


async def _find_unpaired(
    services: Services, call: Call, request: Request, planned: Planned
) -> UnpairedToolCallsError | None:
    """The refusal of unpaired calls and results, which names elements as the client sent them; None if paired."""
    if call.route.settings.pairing != "refuse":
        return None
    conversation = planned.original
    if conversation.continues or find_unpaired(conversation.messages) is None:
        return None
    if call.route.target.mode != "enforce":
        tokens = planned.sections.scale(planned.policy.token_ratio).tokens
        call.ledger.note_refusal(call.attempt, planned.plan.model_limit, tokens, WOULD_REFUSE)
        return None
    if call.request.cleaned:  # its elements have other indexes
        work = partial(call.compactor.plan, request, call.view.policy)
        conversation = (await services.workers.run(call.lane, work, size_bytes=len(request.body))).original
    unpaired, param = find_unpaired(conversation.messages), request.codec.transcript
    return UnpairedToolCallsError(describe_unpaired(unpaired, conversation.origins, param), param) if unpaired else None


def _refuse(call: Call, error: RefusedError) -> Refused:
    """The attempt for a request that cannot fit: refused, or forwarded unchanged if it is only observed."""
    mode, cost = call.route.target.mode, write_cost(error, call.ledger.entries)
    excess = ContextExceededError(describe_excess(error), error.tokens, error.limit, cost)
    compacted = describe_refused(call.request, error)
    if mode != "enforce":
        call.ledger.note_refusal(call.attempt, error.limit, error.tokens, WOULD_REFUSE)
    return Refused(mode, excess if mode == "enforce" else None, call, compacted)


async def _carry_out_first(
    services: Services, call: Call, planned: Planned, reply: Reply, phases: Phases, *, size_bytes: int
) -> Prepared:
    """Make the attempt from a plan that was made with what was learned about the model.

    The attempt ignores a lesson that is due for a test, a learned ratio if it alone would shorten a message, and all
    lessons if the request does not fit with them. Raises RefusedError, but never because of a lesson alone. Raises
    UndecodableError.
    """
    refused: RefusedError | None = None
    newest = call.route.views[0]  # a standing cut is planned by an older scale
    try:
        whole = await _keep_whole(services, call, planned, phases)
        if whole is not None:
            _note_test(call, planned)
            return structs.replace(
                await carry_out(services, *whole, reply, phases, size_bytes=size_bytes), is_test=True
            )
        if not _is_test(services, call, planned):
            return await carry_out(services, call, planned, reply, phases, size_bytes=size_bytes)
        _note_test(call, planned)
        view = newest.doubt(services.config)
    except RefusedError as error:
        if not call.view.has_learned:
            raise
        refused, view = error, newest.forget(services.config)
    trial = _plan_by(services, call, view)
    was_otherwise = planned.plan.breaks_past
    try:
        planned, size_bytes = await _plan(services, trial, phases)
        planned = structs.replace(planned, plan=replace(planned.plan, was_otherwise=was_otherwise))
        attempt = await carry_out(services, trial, planned, reply, phases, size_bytes=size_bytes)
    except RefusedError:
        if refused is None:
            raise
        raise refused from None  # the refusal with learned limits names the better numbers
    return structs.replace(attempt, is_test=True)


async def _keep_whole(services: Services, call: Call, planned: Planned, phases: Phases) -> tuple[Call, Planned] | None:
    """The call and plan that leave the newest messages whole, if only a learned ratio shortens them; else None.

    The ratio may come from another script: after Chinese, English counts twice what it is. So the server decides, as
    long as it has not refused such a request.
    """
    if not planned.plan.window.caps or not call.view.facts.has_ratio or not _may_test(call):
        return None
    family = call.view.trust_family(services.config)
    if call.view.count_for_each(family) <= 1 or not services.models.may_test_ratio(call.view.name):
        return None
    trial = _plan_by(services, call, family)
    whole, _ = await _plan(services, trial, phases)
    wanted, had = whole.plan.request, planned.plan.request
    if whole.plan.window.caps or (wanted is not None and (had is None or wanted.key != had.key)):
        return None
    return trial, structs.replace(whole, plan=replace(whole.plan, was_otherwise=planned.plan.breaks_past))


def _plan_by(services: Services, call: Call, view: ModelView) -> Call:
    """The call, counted and planned by another view of its model. The vocabulary is the same."""
    facts, tenant_id = view.facts, call.arrival.tenant.id
    known, size_bytes = (tenant_id, facts.reading, facts.weights), len(call.request.body)
    compactor = services.compactors.choose(view.settings, view.name.model, *known, size_bytes=size_bytes)
    return structs.replace(call, view=view, compactor=compactor)


def _may_test(call: Call) -> bool:
    """Whether the upstream's answer would show if a lesson holds."""
    # It counts what does not fit its window, too; and nobody sees the answer to a caller here.
    return call.route.target.mode == "enforce" and not call.request.codec.is_count and call.arrival.caller is None


def _is_test(services: Services, call: Call, planned: Planned) -> bool:
    """Whether a request that only a lesson cuts goes out uncut, to test whether the lesson still holds."""
    if not call.view.is_doubtful or not _may_test(call):
        return False
    window, decisions = planned.plan.window, planned.plan.decisions
    is_cut = window.cut is not None or window.prune_stop > 0 or any(each.rule == "memory" for each in decisions)
    return is_cut and services.models.take_test(call.view.name)


async def _plan_standing(services: Services, call: Call, phases: Phases) -> tuple[Call, Planned, int]:
    """The call with its plan, and its size for scheduling. Raises UndecodableError, BusyError.

    A session that was cut is planned by the scale of its cut, or else the cut would move whenever answers teach another
    scale. It gets the newest one if what it sends may not fit by that, or if this process no longer knows the session.
    """
    kept, newest, trial = call.request.kept_body, call.view.facts, call
    by = None if kept is None else kept.cut_by.get(call.view.name.key)
    if by is not None and (by.ratio, by.weights) != (newest.ratio, newest.weights):
        facts = replace(newest, ratio=by.ratio, weights=by.weights)
        view = ModelView.of(services.config, call.view.settings, call.view.name, facts, call.route.upstream)
        trial = _plan_by(services, call, view)
    planned, size_bytes = await _plan(services, trial, phases)
    if trial is not call:
        for_each = planned.policy.token_ratio * max(call.view.count_for_each(trial.view), 1)
        if planned.plan.reserved_tokens * for_each <= call.view.policy.model_limit_tokens(call.request.max_tokens):
            return trial, planned, size_bytes
        planned, size_bytes = await _plan(services, call, phases)
    return call, planned, size_bytes


async def _plan(services: Services, call: Call, phases: Phases) -> tuple[Planned, int]:
    """Return the plan of a request, and its size for scheduling, in bytes. Raises UndecodableError, BusyError."""
    begun, work, size_bytes = phases.begin("plan"), plan_call(call), 0
    if _is_small(call):
        planned = work()
    else:
        size_bytes = await _weigh(services, call)
        # `run_bounded`, because known messages may still need much work if their state was evicted.
        planned = await services.workers.run_bounded(call.lane, work, size_bytes=size_bytes)
    phases.end(begun)
    if call.route.settings.recall == "tool" or services.changed_sessions.total_bytes:
        planned = await add_kept_of_session(services, call, planned)
    return planned, size_bytes


def plan_call(call: Call) -> Callable[..., Planned]:
    known = partial(call.compactor.plan, cold=call.cold, keeps=call.keeps, tells_compaction=call.tells_compaction)
    return partial(known, call.request, call.view.policy)


def _is_small(call: Call) -> bool:
    request = call.request
    is_small = len(request.body) <= SMALL_BODY_BYTES and len(request.raws) <= SMALL_MESSAGES
    return is_small and not call.compactor.is_early


async def _weigh(services: Services, call: Call) -> int:
    """The work that a request takes, as bytes of JSON that were not counted before."""
    request = call.request
    if call.compactor.is_early:
        return weigh_known(len(request.body))
    work = partial(call.compactor.uncounted_bytes, request)
    if len(request.body) <= LARGE_BODY_BYTES and len(request.raws) <= MANY_MESSAGES:
        return work()
    return weigh_known(len(request.body)) + await services.workers.run(call.lane, work, size_bytes=THREAD_BYTES)


async def carry_out(
    services: Services, call: Call, planned: Planned, reply: Reply, phases: Phases, *, size_bytes: int
) -> Prepared:
    """Carry out a plan, and note its decisions. Raises RefusedError, and UndecodableError if splicing fails."""
    plan, mode, chosen = planned.plan, call.route.target.mode, Chosen(planned)
    if plan.request is not None or plan.prefetch is not None:
        if call.request.codec.is_count:
            chosen = await find_text(services, call, planned)
        else:
            chosen = await choose_text(services, call, planned, reply, phases)
    if plan.is_empty and not plan.was_otherwise and mode == "enforce":
        compacted = call.compactor.leave_alone(planned)
    else:
        begun, work = phases.begin("apply"), partial(call.compactor.apply, chosen.planned, chosen.text)
        try:
            run_bounded = services.workers.run_bounded
            is_small = size_bytes == 0 and len(call.request.body) <= SMALL_BODY_BYTES
            compacted = work() if is_small else await run_bounded(call.lane, work, size_bytes=size_bytes)
        except RefusedError as error:
            call.ledger.note(call.attempt, error.limit, error.decisions)
            raise
        phases.end(begun)
    if compacted.decisions:
        call.ledger.note(call.attempt, compacted.limit_tokens, compacted.decisions)
    if mode != "enforce":
        return Prepared(mode, call, chosen, compacted, seconds=phases.seconds)
    outcome = "compacted" if compacted.decisions else "unchanged"
    if call.route.settings.recall != "off":
        outcome = name_outcome(compacted.decisions)
    summary = None if chosen.text is None else name_summary(chosen, compacted)
    return Prepared(outcome, call, chosen, compacted, compacted.pieces, summary=summary, seconds=phases.seconds)


def _note_test(call: Call, planned: Planned) -> None:
    """Write down that the plan for a learned limit gives way to a test of that limit."""
    compacted = call.compactor.leave_alone(planned)
    reason = "a cut for the learned limit, which this request tests instead"
    tokens = compacted.original_tokens
    replaced = Decision("lesson_test", reason, tokens, tokens, 0, 0)
    call.ledger.note(call.attempt, compacted.limit_tokens, [replaced])


def refuse_or_pass(call: Call) -> OverloadedError | None:
    """The refusal of the request; None if it surely needs nothing, or is only observed, and passes unchanged."""
    if call.route.target.mode == "enforce" and not surely_stays(call.request, call.view.policy):
        return OverloadedError(NO_THREAD_LEFT)
    return None


def surely_stays(request: Request, policy: Policy) -> bool:
    """Whether a request surely fits and needs no cut, by its bytes: a token has one at least. Media are never sure."""
    if b"\\u" in request.body or any(_OTHER_PART.search(raw) for raw in request.raws):
        return False
    most_tokens = FRAME_TOKENS + sum(map(len, (*request.raws, *request.fixed)))
    limit = min(policy.limit_tokens(request.max_tokens), policy.model_limit_tokens(request.max_tokens))
    # All tokens count twice, as head (rounded up) and as conversation. So the result is on the safe side.
    room = limit - most_tokens - limit // HEAD_STEPS
    return most_tokens < policy.high_water * room


async def help_cache(services: Services, attempt: Prepared) -> Prepared:
    """The attempt with what its provider takes; the attempt itself if that is nothing, or after a fault."""
    call, compacted, body = attempt.call, attempt.compacted, attempt.body
    if body is None or not call.request.cache.adds:
        return attempt
    with fail_open(services.recorder, call.arrival.request_id, "cache"):
        work = partial(add_help, add_key(call, attempt.chosen.planned), compacted)
        helped = await services.workers.run(call.lane, work, size_bytes=weigh_known(sum(map(len, body))))
        if helped is compacted:
            return attempt
        call.ledger.note(call.attempt, helped.limit_tokens, helped.decisions[len(compacted.decisions) :])
        outcome = OUTCOME if attempt.outcome == "unchanged" else attempt.outcome
        return structs.replace(attempt, outcome=outcome, compacted=helped, body=helped.pieces, plain=attempt)
    return attempt


def settle(call: Call, conversation: Conversation, session: str) -> Call:
    """The call with the name of its session; in mode observe, if that belongs to the share that is only observed.

    The same in every replica: the session's first messages decide. If the upstream holds them, they are not known;
    then the request is observed, whatever the share is.
    """
    route, share = call.route, call.route.observe_share
    may_be_observed = route.target.mode == "enforce" and share > 0
    if may_be_observed and (conversation.continues or place_session(conversation.messages) < share):
        route = replace(route, target=structs.replace(route.target, mode="observe"))
    return structs.replace(call, route=route, session=session)


def tell_changed(planned: Planned) -> Planned:
    """The plan for a session whose upstream must be told that what was sent before was changed."""
    return structs.replace(planned, plan=replace(planned.plan, was_otherwise=True))


async def add_kept_of_session(services: Services, call: Call, planned: Planned) -> Planned:
    """The plan with what is kept of its session: texts that were found, a changed past to tell. Raises BusyError."""
    if call.route.settings.recall == "tool" and call.route.target.mode == "enforce":
        tenant, plan, texts = call.arrival.tenant, planned.plan, services.found_texts
        head, (_, previous) = find_head(plan), find_answered(services, call, planned)
        await texts.read(tenant.id, tenant.secret, head, here=plan.here, previous=previous)
        known = texts.list(tenant.id, head)
        found = find_answers(plan, known.get) if known else []
        if found:
            work = partial(add_answers, plan, found, call.compactor.count)
            size_bytes = sum(len(text) for _, text in found)
            planned = structs.replace(planned, plan=await services.workers.run(call.lane, work, size_bytes=size_bytes))
    changed = services.changed_sessions  # those that `note_changed` knows
    return tell_changed(planned) if changed.total_bytes and _name_changed(call, planned) in changed else planned


def note_changed(services: Services, call: Call, planned: Planned) -> None:
    services.changed_sessions[_name_changed(call, planned)] = True


def _name_changed(call: Call, planned: Planned) -> tuple[str, str, bytes]:
    """The name of a session for what must be remembered of it: what its transcript has up to its first reasoning."""
    plan = planned.plan
    reasons = (at for at, message in enumerate(plan.conversation.messages, 1) if message.has_reasoning)
    return call.arrival.tenant.id, call.route.upstream.base_url, plan.hashes[next(reasons, 0)]
