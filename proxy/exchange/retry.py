"""Sends a request once more after the upstream has refused it.

For its length: learn from the refusal, and plan again. For what was added for the provider's prompt cache, or told of a
changed transcript: without it. For thinking that no longer fits: what trimtab changes during a session is told at once,
but nobody can tell it what was sent before it was there, which is a session that began without it, or before a restart
with other settings or another list of `drop_tools`. Then the request is sent as the client wrote it, if that fits.

Law: each once for a request, and only for one that trimtab has changed: a refusal of the client's own bytes is the
client's. The client never sees a refusal of what only trimtab has added. If nothing shorter can be sent, it gets the
refusal.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from urllib.parse import unquote

from msgspec import structs

from trimtab.proxy.account.recorder import Phases, fail_open
from trimtab.proxy.compaction.compactor import Compacted, RefusedError
from trimtab.proxy.compaction.offload import BusyError, weigh_known
from trimtab.proxy.exchange.answer import is_counted, is_text_only
from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.attempt import Call, Prepared
from trimtab.proxy.exchange.compact import (
    add_kept_of_session,
    carry_out,
    help_cache,
    note_changed,
    plan_call,
    prepare_call,
    tell_changed,
)
from trimtab.proxy.exchange.early_answer import Opening
from trimtab.proxy.exchange.route import PROVIDER_NOTE, THINKING
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.exchange.summary import make_task, name_summary
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.models.lessons import Lesson, Sent, draw_lesson
from trimtab.proxy.models.records import find_ratios
from trimtab.proxy.wire.cache_help import FIELDS, NO_HELP, Addition
from trimtab.proxy.wire.codec import UndecodableError
from trimtab.proxy.wire.overflow import Overflow, Quoted, find_quotes
from trimtab.rules.conversation import Decision
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.tokens.scripts import count_kinds

REFUSING_STATUSES = frozenset({400, 422})
"""The statuses with which servers refuse an unknown field. Source: OpenAI's and vLLM's error answers."""
NAMES: dict[Addition, tuple[bytes, ...]] = {
    **{name: (field,) for name, field in FIELDS.items()},
    THINKING: (b"block_binding",),
    PROVIDER_NOTE: (b"compaction", b"encrypted_content", b"encrypted content"),
}
"""What a refusal of each of them names. Source for notes: Anthropic's and OpenAI's errors."""
REFUSED = "cache_refused"  # The decision to send an attempt again without its additions.
_OWN = "the upstream refused thinking that no longer fits; sent again as the client wrote it"
_NO_NOTE = "the upstream refused its own note; sent again with a digest"
_NAMED = (b"signature", b"thinking")
"""What such a refusal names: "Invalid `signature` in `thinking` block". Source: Anthropic's page on prefix checks."""


async def recover(services: Services, attempt: Prepared, overflow: Overflow, reply: Reply) -> Prepared | None:
    """Plan a second attempt within the limits that the refusal names; None if it would not be shorter."""
    call, refused, phases = attempt.call, attempt.compacted, Phases("recover")
    if attempt.is_test:
        services.models.fail_test(call.view.name)
    call.ledger.note_refusal(
        call.attempt, refused.limit_tokens, refused.sent_tokens, "the upstream refused the prompt as too long"
    )
    with (
        suppress(LimitExceededError, UndecodableError),
        fail_open(services.recorder, call.arrival.request_id, "recover"),
        suppress(BusyError),
    ):
        shorter = await _plan_again(services, call, refused, overflow, reply, phases)
        return shorter and structs.replace(shorter, seconds=(*attempt.seconds, *phases.seconds))
    return None


async def learn_from_retry(services: Services, attempt: Prepared, lesson: Lesson, opening: Opening) -> None:
    call, compacted = attempt.call, attempt.compacted
    with fail_open(services.recorder, call.arrival.request_id, "recover"):
        if opening.overflow is not None:
            await _learn(services, call, compacted, opening.overflow)
        elif opening.status == 200:
            _confirm(services, call, lesson)


async def _plan_again(
    services: Services, call: Call, refused: Compacted, overflow: Overflow, reply: Reply, phases: Phases
) -> Prepared | None:
    lesson = await _learn(services, call, refused, overflow)
    if lesson is None:
        return None
    again = await prepare_call(services, call.arrival, call.route, call.request, call.lane)
    view = structs.replace(again.view, policy=lesson.apply(again.view.policy))
    again = structs.replace(again, view=view, ledger=call.ledger, attempt=call.attempt + 1)
    again, size_bytes = structs.replace(again, session=call.session), weigh_known(len(call.request.body))
    planned = await services.workers.run(again.lane, plan_call(again), size_bytes=size_bytes)
    planned = await add_kept_of_session(services, again, planned)
    try:
        shorter = await carry_out(services, again, planned, reply, phases, size_bytes=size_bytes)
    except RefusedError as error:
        again.ledger.note_refusal(again.attempt, error.limit, error.tokens, "nothing shorter fits this limit")
        raise
    if shorter.compacted.forwarded.tokens >= refused.forwarded.tokens:
        return None
    return structs.replace(shorter, outcome="compacted", lesson=lesson)


async def _learn(services: Services, call: Call, refused: Compacted, overflow: Overflow) -> Lesson | None:
    """Draw the lesson of a refusal. What is certain is learned at once, for this client."""
    work, size_bytes = partial(_judge, call, refused, overflow), weigh_known(len(call.request.body))
    sent, quoted = await services.workers.run(call.lane, work, size_bytes=size_bytes)
    lesson = draw_lesson(overflow, call.view.policy, sent)
    if lesson is None:
        return None
    if quoted is not Quoted.NOTHING:  # a client could have planted the text of the refusal
        return replace(lesson, is_certain=False, teaches=quoted is Quoted.NUMBER)
    if lesson.is_certain:
        await services.models.learn(call.view.name, call.view.believed_tokens, lesson)
    return lesson


def _judge(call: Call, refused: Compacted, overflow: Overflow) -> tuple[Sent, Quoted]:
    """Describe the refused request, and find out how much of the refusal's text appears in it."""
    request, forwarded = call.request, refused.forwarded
    around_bytes = len(request.body) - sum(map(len, request.raws))
    costs = call.compactor.counting.costs
    sent = Sent(
        forwarded.tokens,
        request.max_tokens,
        is_text=is_text_only(forwarded),
        is_counted=is_counted(request, forwarded),
        messages_share=1 - around_bytes / sum(map(len, refused.pieces)),
        ratios=find_ratios(call.view.name.model),
        chars=count_kinds(forwarded, drops_calls=costs.drops_calls),
        weights=costs.weights,
    )
    return sent, max(find_quotes(overflow, said) for said in (request.body, _read_head(call.arrival)))


def _read_head(arrival: Arrival) -> bytes:
    """Target and headers of a request as text; servers quote these, too."""
    values = (arrival.target, unquote(arrival.target), *(value for _, value in arrival.headers))
    return "\n".join(values).encode("utf-8", "replace")


def _confirm(services: Services, call: Call, lesson: Lesson) -> None:
    """Learn a guessed window once a second attempt succeeded, unless the upstream has named its window itself."""
    view, facts = call.view, services.models.recall(call.view.name)
    is_told = view.settings.context_window == "auto" and facts.window_tokens is not None and not facts.from_catalogue
    if lesson.teaches and not lesson.is_certain and not is_told:
        guess = replace(lesson, ratio=None, added_tokens=None, source="second attempt")
        services.models.learn_soon(view.name, view.believed_tokens, guess)


async def undo_refused(services: Services, attempt: Prepared, opening: Opening) -> Prepared | None:
    """The attempt as the client wrote it, or with thinking that may be dropped; None if it was not refused for that."""
    plain = attempt.plain or attempt
    call, chosen, compacted = plain.call, plain.chosen, plain.compacted
    if attempt.is_own and opening.status == 200:
        note_changed(services, call, chosen.planned)
    is_refused = opening.status == 400 and all(name in opening.text for name in _NAMED)
    if not is_refused or THINKING in attempt.dropped or attempt.is_own or not compacted.decisions:
        return None
    if THINKING in {decision.rule for decision in compacted.decisions}:
        return None
    if compacted.original_tokens <= compacted.limit_tokens:
        own, limit_tokens = call.compactor.leave_alone(chosen.planned), compacted.limit_tokens
        tokens, sections = own.original_tokens, own.original_sections
        own = structs.replace(own, decisions=(), sent_tokens=tokens, sent_sections=sections)  # with what was taken out
        call.ledger.note(call.attempt, limit_tokens, [Decision(THINKING, _OWN, compacted.sent_tokens, tokens, 0, 0)])
        return structs.replace(plain, outcome="unchanged", compacted=own, body=None, summary=None, is_own=True)
    return await _allow_drops(services, plain)


async def _allow_drops(services: Services, plain: Prepared) -> Prepared | None:
    """The attempt with thinking that may be dropped; None if its upstream cannot be told."""
    call, chosen = plain.call, plain.chosen
    with (
        suppress(BusyError, RefusedError, UndecodableError),
        fail_open(services.recorder, call.arrival.request_id, "thinking"),
    ):
        planned = tell_changed(chosen.planned)
        work = partial(call.compactor.apply, planned, chosen.text)
        size_bytes = weigh_known(len(call.request.body))
        told = await services.workers.run_bounded(call.lane, work, size_bytes=size_bytes)
        added = [decision for decision in told.decisions if decision.rule == THINKING]
        if not added:
            return None
        note_changed(services, call, planned)
        call.ledger.note(call.attempt, told.limit_tokens, added)
        chosen = structs.replace(chosen, planned=planned)
        return await help_cache(services, structs.replace(plain, chosen=chosen, compacted=told, body=told.pieces))
    return None


async def _leave_note(services: Services, attempt: Prepared, opening: Opening) -> Prepared | None:
    """The attempt with a digest for a refused note of the provider; if that helps, the model gets no more notes."""
    call, chosen, named = attempt.call, attempt.chosen, _find_names(frozenset({PROVIDER_NOTE}), opening)
    wanted, summariser = chosen.planned.plan.request, chosen.summariser
    is_cut = any(decision.rule == "summarise" for decision in attempt.compacted.decisions)
    if not (named and is_cut and chosen.text and chosen.text.note) or opening.overflow is not None:
        return None
    if wanted is None or summariser is None:
        return None
    with (
        suppress(BusyError, RefusedError, UndecodableError),
        fail_open(services.recorder, call.arrival.request_id, "summary"),
    ):
        plain = replace(summariser, provider=None)  # it names the cut's text as the next request will
        task = structs.replace(make_task(call, plain, wanted, chosen.planned), may_ask=False)
        chosen = structs.replace(chosen, text=await services.summaries.get(task), summariser=plain)
        work = partial(call.compactor.apply, chosen.planned, chosen.text)
        told = await services.workers.run_bounded(call.lane, work, size_bytes=weigh_known(len(call.request.body)))
        call.ledger.note(call.attempt, told.limit_tokens, [Decision(REFUSED, _NO_NOTE, 0, 0, 0, 0), *told.decisions])
        digested = structs.replace(
            attempt,
            chosen=chosen,
            compacted=told,
            body=told.pieces,
            plain=None,
            summary=name_summary(chosen, told),
            dropped=attempt.dropped | named,
        )
        return await help_cache(services, digested)
    return None


def _drop_refused(attempt: Prepared, opening: Opening) -> Prepared | None:
    """The attempt without its additions, if the upstream's refusal names one of them; else None."""
    call, rules = attempt.call, {decision.rule for decision in attempt.compacted.decisions}
    named = _find_names(frozenset(name for name in NAMES if name in rules), opening)
    plain = _leave_untold(attempt) if THINKING in named else attempt.plain
    if plain is None or not named:
        return None
    tokens, limit_tokens = plain.compacted.sent_tokens, plain.compacted.limit_tokens
    reason = f"the upstream refused {', '.join(sorted(named))}; sent again without"
    call.ledger.note(call.attempt, limit_tokens, [Decision(REFUSED, reason, tokens, tokens, 0, 0)])
    request = replace(call.request, cache=NO_HELP, takes_binding=THINKING not in named)
    return structs.replace(plain, call=structs.replace(call, request=request), dropped=attempt.dropped | named)


def _leave_untold(attempt: Prepared) -> Prepared | None:
    """The attempt without what the provider is told of a changed transcript; None if it is told nothing."""
    compacted = attempt.compacted
    if compacted.untold is None:
        return None
    decisions = tuple(decision for decision in compacted.decisions if decision.rule != THINKING)
    left = structs.replace(
        compacted, pieces=compacted.untold, untold=None, headers=compacted.note_headers, decisions=decisions
    )
    return structs.replace(attempt, compacted=left, body=left.pieces, plain=None)


async def change(services: Services, attempt: Prepared, opening: Opening) -> Prepared | None:
    """The attempt in another form, if the upstream refuses what only trimtab has added or changed; else None."""
    if attempt.dropped and not _find_names(attempt.dropped, opening):
        # It takes the attempt without what was refused. Remembered only now, no quoted text misleads.
        services.refused_additions.keep(attempt.call.route.asked, attempt.dropped)
    other = await _leave_note(services, attempt, opening) or _drop_refused(attempt, opening)
    if other is None and (opening.status == 400 or attempt.is_own):
        other = await undo_refused(services, attempt, opening)
    return other


def _find_names(added: frozenset[Addition], opening: Opening) -> frozenset[Addition]:
    if opening.status not in REFUSING_STATUSES:
        return frozenset()
    return frozenset(name for name in added if any(word in opening.text for word in NAMES[name]))
