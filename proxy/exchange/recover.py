"""An upstream has refused a prompt for its length: learn from it, and plan again.

Law: once for each request. If nothing shorter can be sent, the refusal stands.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import orjson

from proxy.compaction.compactor import Compacted
from proxy.compaction.offload import BusyError, weigh_known
from proxy.exchange.call import Call, is_text_only
from proxy.exchange.compact import Attempt, carry_out, prepare_call
from proxy.exchange.early_answer import Opening
from proxy.exchange.report import Phases, fail_open
from proxy.exchange.services import Services
from proxy.http.relay import Reply
from proxy.state.models.lessons import Lesson, Sent, draw_lesson
from proxy.wire.codec import UndecodableError
from proxy.wire.overflow.classify import Overflow
from rules.conversation import Conversation
from rules.pipeline.exceeded import LimitExceededError


async def recover(services: Services, attempt: Attempt, overflow: Overflow, reply: Reply) -> Attempt | None:
    """The second attempt, planned within what the refusal tells; None if that does not make it shorter."""
    call, refused, phases = attempt.call, attempt.compacted, Phases("recover")
    if call is None or refused is None:
        return None
    with (
        suppress(LimitExceededError, UndecodableError),
        fail_open(services.recorder, call.arrival.request_id, "recover"),
        suppress(BusyError),
    ):
        shorter = await _plan_again(services, call, refused, overflow, reply, phases)
        return shorter and replace(shorter, seconds=(*attempt.seconds, *phases.seconds))
    return None


async def learn_from_retry(services: Services, attempt: Attempt, first: Overflow, opening: Opening) -> None:
    """Learn from the answer to a second attempt, to which the refusal of the `first` had led."""
    call, compacted, lesson = attempt.call, attempt.compacted, attempt.lesson
    if call is None or compacted is None or lesson is None:
        return
    with fail_open(services.recorder, call.arrival.request_id, "recover"):
        if opening.overflow is not None:
            await _learn(services, call, compacted.forwarded, opening.overflow)
        elif opening.status == 200:
            _confirm(services, call, lesson, first)


async def _plan_again(
    services: Services, call: Call, refused: Compacted, overflow: Overflow, reply: Reply, phases: Phases
) -> Attempt | None:
    lesson = await _learn(services, call, refused.forwarded, overflow)
    if lesson is None:
        return None
    again = await prepare_call(services, call.arrival, call.route, call.request)
    again = replace(again, view=replace(again.view, policy=lesson.apply(again.view.policy)))
    work, size_bytes = (
        partial(again.compactor.plan, again.request, again.view.policy),
        weigh_known(len(call.request.body)),
    )
    planned = await services.workers.run(again.lane, work, size_bytes=size_bytes)
    shorter = await carry_out(services, again, planned, reply, phases, size_bytes=size_bytes)
    if shorter.compacted is None or shorter.compacted.forwarded.tokens >= refused.forwarded.tokens:
        return None
    return replace(shorter, outcome="compacted", lesson=lesson)


async def _learn(services: Services, call: Call, forwarded: Conversation, overflow: Overflow) -> Lesson | None:
    """What the refusal of what was sent teaches; the models learn at once what is certain."""
    sent = Sent(forwarded.tokens, call.request.max_tokens, is_text=is_text_only(forwarded))
    lesson = draw_lesson(overflow, call.view.policy, sent)
    if lesson is None:
        return None
    if _is_quoted(overflow, call.request.body):  # whoever wrote that must not decide for others
        return replace(lesson, is_certain=False)
    if lesson.is_certain:
        await services.models.learn(call.view.name, call.view.believed_tokens, lesson)
    return lesson


def _confirm(services: Services, call: Call, lesson: Lesson, overflow: Overflow) -> None:
    """The second attempt has gone through: a guess is learned, if nobody knows better and no client has made it up.

    A window that the upstream tells, when asked or in a refusal, is better than a guess.
    """
    view, facts = call.view, services.models.recall(call.view.name)
    is_told = view.settings.context_window == "auto" and facts.window_tokens is not None and not facts.from_catalogue
    if not (lesson.is_certain or is_told or _is_quoted(overflow, call.request.body)):
        services.models.learn_soon(view.name, view.believed_tokens, lesson)


def _is_quoted(overflow: Overflow, body: bytes) -> bool:
    """Whether the telling words of the refusal stand in the request itself, however that writes its JSON."""
    with suppress(orjson.JSONDecodeError, TypeError):
        is_plain = b"\\u" not in body and b"\\/" not in body
        body = body if is_plain else orjson.dumps(orjson.loads(body))
    return any(orjson.dumps(words)[1:-1] in body for words in overflow.telling_words)
