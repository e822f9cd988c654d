"""Recovery after an upstream refused a prompt for its length: learn from the refusal, and plan again.

Law: once for each request. If nothing shorter can be sent, the client gets the refusal.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from urllib.parse import unquote

from proxy.compaction.compactor import Compacted
from proxy.compaction.offload import BusyError, weigh_known
from proxy.compaction.refusal import RefusedError
from proxy.exchange.arrival import Arrival
from proxy.exchange.attempts.attempt import Prepared
from proxy.exchange.attempts.call import Call, is_counted, is_text_only
from proxy.exchange.attempts.changed_sessions import heed_changed
from proxy.exchange.attempts.compact import carry_out, plan_call, prepare_call
from proxy.exchange.early_answer import Opening
from proxy.exchange.phases import Phases
from proxy.exchange.report import fail_open
from proxy.exchange.services import Services
from proxy.http.relay import Reply
from proxy.state.models.lessons import Lesson, Sent, draw_lesson
from proxy.state.models.records import find_ratios
from proxy.wire.codec import UndecodableError
from proxy.wire.overflow.classify import Overflow
from proxy.wire.overflow.quotes import Quoted, find_quotes
from rules.pipeline.exceeded import LimitExceededError


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
        return shorter and replace(shorter, seconds=(*attempt.seconds, *phases.seconds))
    return None


async def learn_from_retry(services: Services, attempt: Prepared, lesson: Lesson, opening: Opening) -> None:
    """Learn from the answer to a second attempt."""
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
    again = await prepare_call(services, call.arrival, call.route, call.request)
    view = replace(again.view, policy=lesson.apply(again.view.policy))
    again = replace(again, view=view, ledger=call.ledger, attempt=call.attempt + 1)
    again, size_bytes = replace(again, session=call.session), weigh_known(len(call.request.body))
    planned = await services.workers.run(again.lane, plan_call(again), size_bytes=size_bytes)
    planned = heed_changed(services, again, planned)
    try:
        shorter = await carry_out(services, again, planned, reply, phases, size_bytes=size_bytes)
    except RefusedError as error:
        again.ledger.note_refusal(again.attempt, error.limit, error.tokens, "nothing shorter fits this limit")
        raise
    if shorter.compacted.forwarded.tokens >= refused.forwarded.tokens:
        return None
    return replace(shorter, outcome="compacted", lesson=lesson)


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
    sent = Sent(
        forwarded.tokens,
        request.max_tokens,
        is_text=is_text_only(forwarded),
        is_counted=is_counted(request, forwarded),
        messages_share=1 - around_bytes / max(sum(map(len, refused.pieces)), 1),
        ratios=find_ratios(call.view.name.model),
    )
    return sent, max(find_quotes(overflow, said) for said in (request.body, _read_head(call.arrival)))


def _read_head(arrival: Arrival) -> bytes:
    """Target and headers of a request as text; servers quote these, too."""
    values = (arrival.target, unquote(arrival.target), *(value for _, value in arrival.headers))
    return "\n".join(values).encode("utf-8", "replace")


def _confirm(services: Services, call: Call, lesson: Lesson) -> None:
    """Learn a guessed window after the second attempt succeeded, unless the upstream has named its window.

    A window that the upstream names, when asked or in a refusal, is better than a guess.
    """
    view, facts = call.view, services.models.recall(call.view.name)
    is_told = view.settings.context_window == "auto" and facts.window_tokens is not None and not facts.from_catalogue
    if lesson.teaches and not lesson.is_certain and not is_told:
        guess = replace(lesson, ratio=None, added_tokens=None, source="second attempt")
        services.models.learn_soon(view.name, view.believed_tokens, guess)
