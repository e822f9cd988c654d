"""A request is compacted, or what would become of it is found out.

Law: a fault inside compaction forwards the client's own bytes, and is counted. Nothing is raised: what became of the
request is in what is returned.
"""

import re
from dataclasses import dataclass, replace
from functools import partial

from proxy.compaction.compactor import Compacted, Planned, describe_refused
from proxy.compaction.offload import INLINE_BYTES, LARGE_BODY_BYTES, MANY_MESSAGES, BusyError, weigh_known
from proxy.exchange.arrival import Arrival
from proxy.exchange.call import Call, Route, find_credentials_for
from proxy.exchange.choose_summary import Chosen, choose_text
from proxy.exchange.report import Phases, fail_open
from proxy.exchange.services import Services
from proxy.http.errors import NO_THREAD_LEFT, ContextExceededError, OverloadedError, ProxyError
from proxy.http.relay import Reply
from proxy.state.models.lessons import Lesson
from proxy.state.models.model_policy import ModelView, name_model
from proxy.wire.codec import Request, UndecodableError
from rules.pipeline.exceeded import LimitExceededError
from rules.policy import Policy
from rules.window.room import HEAD_STEPS

SMALL_BODY_BYTES = 2 * 1024
"""Counting a body up to this size takes no longer than a look at what of it is known, whatever it holds."""
FRAME_TOKENS = 64
"""What a request costs beside its own bytes, at most."""
_OTHER_PART = re.compile(rb'"type"\s*+:\s*+"(?!(?:text|function)")')
"""A part that is not text."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is sent, and what is known of it.

    `outcome` is the metrics' word for it. `call` and `chosen` are None if the request could not be compacted, or was
    not to be; `compacted` is what is known of a request that is refused, too. `body` is what goes out, in pieces; None
    for the client's own bytes. `refusal` is our own error, if the policy refuses what cannot fit, or if there was no
    thread for the work. `lesson` is what the success of a second attempt teaches. `is_test`: it goes out as if nothing
    had been learned. `seconds` are those of each phase.
    """

    outcome: str
    call: Call | None = None
    chosen: Chosen | None = None
    compacted: Compacted | None = None
    body: tuple[bytes, ...] | None = None
    refusal: ProxyError | None = None
    lesson: Lesson | None = None
    is_test: bool = False
    seconds: tuple[tuple[str, float], ...] = ()


async def compact(services: Services, arrival: Arrival, route: Route, request: Request, reply: Reply) -> Attempt:
    """The first attempt. A client that waits long for a summary hears from us through its `reply`."""
    if route.target.mode == "off":
        return Attempt("off")
    attempt, phases = Attempt("failed_open"), Phases("plan")
    try:
        with fail_open(services.recorder, arrival.request_id, phases):
            call = await prepare_call(services, arrival, route, request)
            try:
                attempt = await _plan_and_carry_out(services, call, reply, phases)
            except BusyError:
                attempt = give_way(call)
    except UndecodableError:
        attempt = Attempt("undecodable")
    except LimitExceededError as error:
        refusal = ContextExceededError(_describe_excess(error)) if route.target.mode == "enforce" else None
        attempt = Attempt(route.target.mode, compacted=describe_refused(request, error), refusal=refusal)
    return attempt if attempt.seconds else replace(attempt, seconds=phases.seconds)


async def prepare_call(services: Services, arrival: Arrival, route: Route, request: Request) -> Call:
    """The call, with what is known of its model."""
    settings, label = route.settings, services.recorder.label(route.target)
    compactor = await services.compactors.get(settings, route.target.model, arrival.tenant.id)
    name = name_model(services.config, settings, route.target.model, arrival.tenant)
    facts = await services.models.look_up(name, label)
    if settings.context_window == "auto":
        shown = find_credentials_for(route.upstream, arrival.end_to_end)
        services.models.seek_windows(route.upstream, shown, arrival.tenant.id)
    view = ModelView.of(services.config, settings, name, facts)
    return Call(arrival, route, request, compactor, view, label, services.lane(arrival.tenant))


async def _plan_and_carry_out(services: Services, call: Call, reply: Reply, phases: Phases) -> Attempt:
    """The attempt by what was learned; by what was told alone if that is to be tested, or if nothing fits by it.

    Raises LimitExceededError, never on the word of a lesson alone, and UndecodableError.
    """
    refused: LimitExceededError | None = None
    try:
        planned, size_bytes = await _plan(services, call, phases)
        if planned.plan.is_empty and call.route.target.mode == "enforce":
            compacted = call.compactor.leave_alone(planned)
            return Attempt("unchanged", call, Chosen(planned), compacted, compacted.pieces, seconds=phases.seconds)
        if not _is_test(services, call, planned):
            return await carry_out(services, call, planned, reply, phases, size_bytes=size_bytes)
        view = call.view.doubt(services.config)
    except LimitExceededError as error:
        if not call.view.has_learned:
            raise
        refused, view = error, call.view.forget(services.config)
    trial = replace(call, view=view)
    try:
        planned, size_bytes = await _plan(services, trial, phases)
        attempt = await carry_out(services, trial, planned, reply, phases, size_bytes=size_bytes)
    except LimitExceededError:
        if refused is None:
            raise
        raise refused from None  # in the model's own numbers
    return replace(attempt, is_test=True)


def _is_test(services: Services, call: Call, planned: Planned) -> bool:
    """Whether a request that something learned cuts is to go out uncut, to see whether it is true still."""
    if not call.view.is_doubtful or call.route.target.mode != "enforce":
        return False
    window = planned.plan.window
    return (window.cut is not None or window.prune_stop > 0) and services.models.take_test(call.view.name)


async def _plan(services: Services, call: Call, phases: Phases) -> tuple[Planned, int]:
    """The plan of a request, and how much work it is. Raises UndecodableError, BusyError."""
    with phases.timed("plan"):
        if len(call.request.body) <= SMALL_BODY_BYTES:
            return call.compactor.plan(call.request, call.view.policy), 0
        size_bytes = await _weigh(services, call)
        # Messages may be known, and what became of them forgotten.
        work = partial(call.compactor.plan, call.request, call.view.policy)
        planned = await services.workers.run_bounded(call.lane, work, size_bytes=size_bytes)
    return planned, size_bytes


async def _weigh(services: Services, call: Call) -> int:
    """How much work a request is, as bytes of JSON that were not counted before."""
    request, known_bytes = call.request, weigh_known(len(call.request.body))
    work = partial(call.compactor.uncounted_bytes, request)
    if len(request.body) <= LARGE_BODY_BYTES and len(request.raws) <= MANY_MESSAGES:
        return work()
    return known_bytes + await services.workers.run(call.lane, work, size_bytes=INLINE_BYTES + 1)


async def carry_out(
    services: Services, call: Call, planned: Planned, reply: Reply, phases: Phases, *, size_bytes: int
) -> Attempt:
    """The attempt of a plan. Raises LimitExceededError if the policy refuses, UndecodableError if splicing fails."""
    chosen = Chosen(planned)
    if planned.plan.request is not None or planned.plan.prefetch is not None:
        chosen = await choose_text(services, call, planned, reply, phases)
    with phases.timed("apply"):
        text = chosen.text
        work = partial(call.compactor.apply, chosen.planned, text)
        compacted = await services.workers.run_bounded(call.lane, work, size_bytes=size_bytes)
    outcome = call.route.target.mode
    if outcome == "enforce":
        outcome = "compacted" if compacted.decisions else "unchanged"
    body = compacted.pieces if call.route.target.mode == "enforce" else None
    return Attempt(outcome, call, chosen, compacted, body, seconds=phases.seconds)


def give_way(call: Call) -> Attempt:
    """The attempt of a request that has waited too long for a thread: as it came, if that surely changes nothing."""
    if call.route.target.mode == "enforce" and not surely_stays(call.request, call.view.policy):
        return Attempt("busy", refusal=OverloadedError(NO_THREAD_LEFT))
    return Attempt("busy")


def surely_stays(request: Request, policy: Policy) -> bool:
    """Whether a request that was not counted fits the window, and no cut is made in it, whatever it says.

    No token is shorter than a byte; but images and files are not counted by their bytes.
    """
    if b"\\u" in request.body or any(_OTHER_PART.search(raw) for raw in request.raws):
        return False
    most_tokens = FRAME_TOKENS + sum(map(len, (*request.raws, *request.fixed)))
    limit = min(policy.limit_tokens(request.max_tokens), policy.model_limit_tokens(request.max_tokens))
    # All of it may be head, whose size is rounded up, and all of it may stand behind the head.
    room = limit - most_tokens - limit // HEAD_STEPS
    return most_tokens < policy.high_water * room


def _describe_excess(error: LimitExceededError) -> str:
    done = ", ".join(f"{decision.rule} saved {decision.saved_tokens}" for decision in error.decisions)
    # OpenAI's own wording, which clients look for.
    return (
        f"This model's maximum context length is {error.window} tokens."
        f" However, your messages resulted in {error.tokens} tokens after compaction ({done or 'nothing helped'})."
        f" {error.window - error.limit} tokens of the window are reserved for the completion,"
        f" which leaves a limit of {error.limit} tokens for the prompt."
        " Please reduce the length of the newest messages, or of what is always kept:"
        " system messages, tools, the first user message."
    )
