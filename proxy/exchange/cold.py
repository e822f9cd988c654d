"""Cuts a session whose prompt the upstream has surely dropped from its cache, and replays such cuts.

Law: the clock decides once, and the decision is kept in the store before it is acted on. From then on it is replayed by
every process. A request waits for a summary only if the cut pays for it. If the model that was asked writes none,
nothing is cut. Where the policy asks no model, the cut gets a digest, as it would later. After an answer, its time is
remembered for the session's next request, and the summary of a cut that may come is prepared.

A cut that somebody asks for, by a header or by a message, is kept and replayed in the same way, whatever the cache has.
What was said with it reaches the model that writes the summary, and nobody else.

What a client wants kept, by the header `x-trimtab-keep`, is marked and kept in the same way, by the prefix that the
message ends. If nothing is shortened, no mark is looked for.

What is not known is not cold: neither a session of whose last request no process remembers the time, nor one of a
server that keeps prompts as long as it has memory.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from msgspec import structs

from trimtab.proxy.account.outcome import Answered
from trimtab.proxy.compaction.compactor import Planned
from trimtab.proxy.compaction.offload import MANY_MESSAGES, THREAD_BYTES
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.exchange.attempt import Attempt, Call, Prepared
from trimtab.proxy.exchange.route import MAX_WORDS_CHARS
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.exchange.summary import choose_summariser, make_task, wait_for, write_ahead
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.models.records import ModelName
from trimtab.proxy.summaries.cold_cuts import ColdCuts, Session
from trimtab.proxy.telemetry.ledger import COLD_CACHE, COMPACT_NOW, IS_CUT, TOO_SHORT, WAS_CUT
from trimtab.proxy.wire.transcript.body import find_all
from trimtab.rules.conversation import Conversation, Decision, Message, Role, count_leading, ends_with_prefill
from trimtab.rules.pipeline.exceeded import KEEP
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.pipeline.transcript_state import find_cold
from trimtab.rules.prefix import hash_prefixes
from trimtab.rules.summary.request import request_cold
from trimtab.rules.window.economics import pays_cold
from trimtab.rules.window.state import ColdCut

_COMMAND = re.compile(rf"/compact(?:\s+(.{{1,{MAX_WORDS_CHARS}}}))?", re.DOTALL)

ANCHOR_MESSAGES = 8
"""Tell a session, after the leading ones. Chosen: two of a client differ by then; shorter ones get no summary."""
_RETENTION = re.compile(
    rb'"(?:prompt_cache_retention"|(?:cache_control|prompt_cache_options)"\s*+:\s*+\{[^{}]{0,99}?"ttl")\s*+:\s*+"(\w{1,16})"'
)
"""Matches the members by which a request says how long it is cached, never a text, whose quotes are escaped."""
_find_retention = _RETENTION.findall

KEEP_ANCHORS = (3, ANCHOR_MESSAGES)
"""The same for a kept message, the more the longer. Chosen: a request with a tool's first result has three."""
LAST = "last"
_PLACE = re.compile(r"-?[0-9]{1,9}", re.ASCII)
MAX_ANSWERS = 32  # Looked at between two requests. Chosen: more than agents make in one turn elsewhere.

PlanAgain = Callable[[Call], Awaitable[tuple[Planned, int]]]


def name_cache(name: ModelName) -> str:
    return f"{name.base_url} {name.model}"


def uses_cache(upstream: UpstreamConfig) -> bool:
    """Whether trimtab may go by what this upstream has in its cache."""
    return upstream.cache == "auto" and upstream.cache_seconds != 0


def find_session(services: Services, call: Call, planned: Planned, *, is_asked: bool = False) -> Session | None:
    """The session of a request, if it may be cut at a cold cache once long enough. is_asked: whatever the cache has."""
    plan = planned.plan
    messages, arrival = plan.conversation.messages, call.arrival
    if not is_asked and not (services.cold_cuts.is_kept and uses_cache(call.route.upstream)):
        return None
    if call.route.target.mode != "enforce" or planned.original.continues or plan.is_client_compaction:
        return None
    at = count_leading(messages) + ANCHOR_MESSAGES
    if len(messages) < at:
        return None
    return Session(arrival.tenant.id, arrival.tenant.secret, name_cache(call.view.name), plan.hashes[at])


def may_be_marked(services: Services, call: Call, planned: Planned) -> bool:
    """Whether another process may have marked a message of the session that is to be kept.

    If this process has heeded them for the session's previous request, and answered that, it knows of all. What is not
    shortened needs no mark, so it teaches nothing of them.
    """
    plan, marks = planned.plan, services.cold_cuts.kept
    if not (marks.is_kept and (plan.decisions or plan.window.changes_sent)):
        return False
    session, previous = find_answered(services, call, planned)
    return session is None or previous is None or not marks.follow(session, previous, plan.here)


def find_answered(services: Services, call: Call, planned: Planned) -> tuple[Session | None, bytes | None]:
    """The session, and its previous request if this process has answered it: to have planned it is not enough."""
    session = find_session(services, call, planned, is_asked=True)
    previous = planned.plan.hashes[find_previous(planned.plan.conversation.messages)]
    is_answered = session is not None and services.cold_cuts.recall_time(session, previous) is not None
    return session, previous if is_answered else None


async def cut_at_cold_cache(
    services: Services, call: Call, planned: Planned, plan_again: PlanAgain, reply: Reply
) -> tuple[Call, Planned]:
    """The call and plan with the session's cold cuts, and a new one if due. Raises UndecodableError and BusyError."""
    session = find_session(services, call, planned)
    if session is None:
        return call, planned
    cold_cuts, plan = services.cold_cuts, planned.plan
    previous = plan.hashes[find_previous(plan.conversation.messages)]
    if not plan.window.is_long:  # it has no cold cut, and gets none
        return _note_silence(call, cold_cuts.clock(), cold_cuts.recall_time(session, previous)), planned
    await cold_cuts.wishes.refresh()
    known = await cold_cuts.read(session, is_followed=cold_cuts.recall_time(session, previous) is not None)
    call = structs.replace(call, cold={**call.cold, **known})
    if find_cold(plan.hashes, call.cold) != plan.cold:
        planned, _ = await plan_again(call)
    if call.request.codec.is_count:
        return call, planned
    answered_at = await cold_cuts.find_time(session, previous)
    if answered_at is None:
        answered_at = recall_earlier(cold_cuts, session, plan)
    call = _note_silence(call, cold_cuts.clock(), answered_at)
    if not _is_cold(services, call):
        return call, planned
    return await _cut(services, call, planned, session, plan_again, reply)


def find_previous(messages: Sequence[Message]) -> int:
    """The number of messages of the request before this one, if that ended before the last answer of the model."""
    return next(_find_stops(messages))


def recall_earlier(cold_cuts: ColdCuts, session: Session, plan: Plan) -> float | None:
    """When this process answered the newest request that it knows of the session, whoever answered in between."""
    stops = islice(_find_stops(plan.conversation.messages), MAX_ANSWERS)
    times = (cold_cuts.recall_time(session, plan.hashes[stop]) for stop in stops)
    return next((at for at in times if at is not None), None)


def _find_stops(messages: Sequence[Message]) -> Iterator[int]:
    """Where requests may have ended, the newest first: before each answer, and at the beginning."""
    at = len(messages) - ends_with_prefill(messages)
    while at:
        for is_answer in (False, True):
            while at and (messages[at - 1].role is Role.ASSISTANT) is is_answer:
                at -= 1
        yield at
    yield 0


def find_lifetime(services: Services, call: Call) -> float | None:
    """The seconds that the upstream keeps this prompt in its cache; None if that depends on its memory alone."""
    configured = call.route.upstream.cache_seconds
    if configured != "auto":
        return float(configured)
    name = call.view.name
    find = partial(services.lifetimes.find, call.arrival.tenant.id, name.base_url, name.model)
    if find() is None:  # whatever the request says
        return None
    request = call.request
    return find([one.decode() for one in find_all(request.body, request.raws, request.kept_body, _find_retention)])


def _note_silence(call: Call, now: float, answered_at: float | None) -> Call:
    return call if answered_at is None else structs.replace(call, idle_seconds=max(now - answered_at, 0.0))


def _is_cold(services: Services, call: Call) -> bool:
    idle_seconds = call.idle_seconds or 0.0
    if not services.lifetimes.may_be_over(idle_seconds) and call.route.upstream.cache_seconds == "auto":
        return False
    lifetime_seconds = find_lifetime(services, call)
    return lifetime_seconds is not None and idle_seconds > lifetime_seconds


async def _cut(
    services: Services, call: Call, planned: Planned, session: Session, plan_again: PlanAgain, reply: Reply
) -> tuple[Call, Planned]:
    """Cut now, if a cut frees enough and its summary is there; else remove only what needs none; else ask for one."""
    here = planned.plan.here
    for kind in (ColdCut.CUT, ColdCut.PRUNE, ColdCut.ASK):
        trial, _ = await plan_again(structs.replace(call, cold={**call.cold, here: kind}))
        if trial.plan.window == planned.plan.window:
            continue
        if not await _has_text(services, call, planned, trial) and not (
            kind is ColdCut.ASK and await _ask(services, call, trial, reply)
        ):
            continue
        known = await services.cold_cuts.add(session, here, kind)
        call = structs.replace(call, cold={**call.cold, **known})
        if known.get(here) is not kind:  # another process was first
            trial, _ = await plan_again(call)
        _note_decision(call, trial, COLD_CACHE, f"the upstream's cache was cold after {call.idle_seconds or 0.0:.0f} s")
        return call, trial
    return call, planned


async def cut_on_wish(services: Services, call: Call, planned: Planned, plan_again: PlanAgain) -> tuple[Call, Planned]:
    """The call and plan with a cut, if one is asked for and frees enough. Raises UndecodableError and BusyError."""
    if call.request.codec.is_count:
        return call, planned
    session, here = find_session(services, call, planned, is_asked=True), planned.plan.here
    words = call.route.compact_now
    if words is None:
        words = await _find_words(services, call, planned, is_long=session is not None)
    if words is None:
        return call, planned
    if session is None:
        return _note_wish(call, planned, TOO_SHORT)
    if here in call.cold:
        return _note_wish(call, planned, WAS_CUT)
    trial, _ = await plan_again(structs.replace(call, cold={**call.cold, here: ColdCut.NOW}))
    if trial.plan.window == planned.plan.window:
        return _note_wish(call, planned, TOO_SHORT)
    known = await services.cold_cuts.add(session, here, ColdCut.NOW)
    call = structs.replace(call, cold={**call.cold, **known}, words=words)
    if known.get(here) is not ColdCut.NOW:  # another process was first, or the session has too many marks
        trial, _ = await plan_again(call)
    return _note_wish(call, trial, IS_CUT)


async def _find_words(services: Services, call: Call, planned: Planned, *, is_long: bool) -> str | None:
    """What the command in the last message or the operator's wish tells the summary to heed; None if neither does."""
    words = read_command(planned.plan.conversation.messages) if services.config.compaction.command else None
    wishes = services.cold_cuts.wishes
    if words is not None or not is_long or (wish := wishes.find(call.session)) is None:
        return words
    is_taken = await wishes.take(call.session, wish, planned.plan.here)
    return wish.read_words(call.session) if is_taken else None


def read_command(messages: Sequence[Message]) -> str | None:
    """What the last message tells a summary to heed, if it is the command for a cut; may be empty. Else None."""
    if not messages or messages[-1].role is not Role.USER or len(messages[-1].texts) != 1:
        return None
    found = _COMMAND.fullmatch(messages[-1].texts[0][: 2 * MAX_WORDS_CHARS].strip())
    return None if found is None else found[1] or ""


def _note_wish(call: Call, planned: Planned, reason: str) -> tuple[Call, Planned]:
    _note_decision(call, planned, COMPACT_NOW, reason)
    return call, planned


def _note_decision(call: Call, planned: Planned, rule: str, reason: str) -> None:
    tokens = planned.sections.scale(planned.policy.token_ratio).tokens
    call.ledger.note(call.attempt, planned.plan.model_limit, [Decision(rule, reason, tokens, tokens, 0, 0)])


async def _has_text(services: Services, call: Call, before: Planned, after: Planned) -> bool:
    """Whether a plan can be carried out without asking a model."""
    wanted, had = after.plan.request, before.plan.request
    if wanted is None or not wanted.asks_model or (had is not None and had.key == wanted.key):
        return True
    return await services.summaries.find(wanted, choose_summariser(services, call)) is not None


async def _ask(services: Services, call: Call, planned: Planned, reply: Reply) -> bool:
    """Have a model write the summary of a plan, by its transcript, as no prefix is cached. Whether it did."""
    wanted, summariser = planned.plan.request, choose_summariser(services, call)
    if (
        wanted is None
        or summariser.settings.wait_seconds == 0
        or not summariser.waits
        or services.sliding.slides(summariser.client_id, planned.plan)
    ):
        return False
    writing = services.summaries.write(make_task(call, summariser, wanted, planned))
    return await wait_for(services, call, reply, writing) is not None


async def keep_marked(services: Services, call: Call, planned: Planned, plan_again: PlanAgain) -> tuple[Call, Planned]:
    """The call and plan with what is to be kept, also from earlier requests. Raises UndecodableError and BusyError."""
    plan, marks, names = planned.plan, services.cold_cuts.kept, call.route.keep
    if call.route.target.mode != "enforce" or planned.original.continues or plan.is_client_compaction:
        return call, planned
    sessions, found, here = _list_sessions(call, planned), set[bytes](), plan.here
    if may_be_marked(services, call, planned):
        for session in sessions:
            found.update(await marks.read(session, is_followed=False))
            marks.note_heeded(session, here, found)
    places = find_places(planned.original, names)
    if places and sessions and not call.request.codec.is_count:
        hashes = await _hash(services, call, planned.original)
        for at in (at for at in places if any(hashes[at + 1])):  # the beginning of every session has zeros
            found.update(await marks.add(sessions[-1], hashes[at + 1], ColdCut.NOW))
        marks.note_added(sessions[-1], here, found)
        known = found.union(call.keeps)
        number = sum(hashes[at + 1] in known for at in places)
        _note_decision(call, planned, KEEP, f"{number} of {len(places)} messages are marked to be kept")
    elif names:
        _note_decision(
            call, planned, KEEP, "nothing is marked to be kept: no such message, or the conversation has just begun"
        )
    if not found.issubset(call.keeps):
        call = structs.replace(call, keeps=frozenset(found.union(call.keeps)))
        planned, _ = await plan_again(call)
    return call, planned


def _list_sessions(call: Call, planned: Planned) -> list[Session]:
    """The session, by its first messages: by few and, if it is long enough, by more. The marks of it go to the last."""
    plan, tenant = planned.plan, call.arrival.tenant
    stops = (plan.leading + number for number in KEEP_ANCHORS)
    anchors = [plan.hashes[stop] for stop in stops if stop < len(plan.hashes)]
    return [Session(tenant.id, tenant.secret, name_cache(call.view.name), anchor) for anchor in anchors]


async def _hash(services: Services, call: Call, original: Conversation) -> list[bytes]:
    size_bytes = THREAD_BYTES if len(original.messages) > MANY_MESSAGES else 0
    return await services.workers.run(call.lane, partial(hash_prefixes, original.messages), size_bytes=size_bytes)


def find_places(original: Conversation, names: Sequence[str]) -> list[int]:
    """The messages that are named: `last`, a place in the request's list, or the id of a call for its result."""
    wanted, ids = set[int](), set(names)
    number = max((origin.stop for origin in original.origins if origin is not None), default=0)
    for name in names:
        if name == LAST or _PLACE.fullmatch(name):
            at = -1 if name == LAST else int(name)
            wanted.add(at if at >= 0 else number + at)
    found = list[int]()
    for index, (message, origin) in enumerate(zip(original.messages, original.origins, strict=True)):
        is_placed = origin is not None and any(element in wanted for element in range(origin.start, origin.stop))
        if is_placed or message.answers in ids:
            found.append(index)
    return found


async def remember(services: Services, attempt: Attempt, answered: Answered) -> None:
    """Note the time of this answer for the session's next request, for all processes if the cache is used."""
    if not isinstance(attempt, Prepared) or attempt.body is None:
        return
    call, planned = attempt.call, attempt.chosen.planned
    plan, session = planned.plan, find_session(services, call, planned)
    previous = plan.hashes[find_previous(plan.conversation.messages)] if services.cold_cuts.is_kept else b""
    if session is None:
        if services.cold_cuts.is_kept and (session := find_session(services, call, planned, is_asked=True)) is not None:
            await services.cold_cuts.note_time(session, plan.here, previous, shares=False)
        return
    if call.idle_seconds is not None and answered.prompt_tokens and answered.cached_tokens is not None:
        share, name = answered.cached_tokens / answered.prompt_tokens, call.view.name
        services.lifetimes.learn(session.tenant, name.base_url, name.model, call.idle_seconds, share)
    await services.cold_cuts.note_time(session, plan.here, previous, shares=plan.window.is_long)


def prepare_cold(services: Services, attempt: Attempt, answered: Answered) -> None:
    """Start to write the summary for a cut at a cold cache, if that pays, while the cache is warm; once a request."""
    if not isinstance(attempt, Prepared) or attempt.is_test or not answered.ends_turn:
        return
    call, chosen, plan = attempt.call, attempt.chosen, attempt.chosen.planned.plan
    cold = plan.window.cold_summary
    if cold is None or plan.is_put_off or chosen.later is not None:
        return
    if attempt.body is None or find_session(services, call, chosen.planned) is None:
        return
    lifetime_seconds = find_lifetime(services, call)
    if lifetime_seconds is None or not pays_cold(cold, lifetime_seconds):
        return
    later = request_cold(plan.conversation.messages, plan.hashes, plan.window)
    summariser = chosen.summariser or choose_summariser(services, call)
    write_ahead(services, call, structs.replace(chosen, later=later, summariser=summariser), attempt.compacted)
