"""An upstream has refused a prompt for its length: learn from it, and plan again.

Law: once for each request. Where nothing shorter can be sent, the refusal stands.
"""

from dataclasses import dataclass, replace
from functools import partial

import orjson

from proxy.codecs.message import UndecodableError
from proxy.lessons import Lesson, draw_lesson
from proxy.observing import describe_sent
from proxy.overflow import Overflow
from proxy.texts import Call, Carried, carry_out, make_call
from proxy.threads import run_work
from rules.pipeline import LimitExceededError

QUOTE_CHARS = 24
"""Around a number: enough to tell a server's own words from a client's."""


@dataclass(frozen=True, slots=True)
class Again:
    """The second attempt, and what its success would teach."""

    call: Call
    carried: Carried
    lesson: Lesson


async def plan_again(call: Call, carried: Carried, overflow: Overflow) -> Again | None:
    """The request planned within what the refusal tells; None where that does not make it shorter."""
    lesson = await learn(call, carried, overflow)
    if lesson is None:
        return None
    again = await make_call(call.services, call.request, call.chat, call.settings, call.exchange)
    again = _narrow(again, lesson)
    try:
        planned = await run_work(partial(again.compactor.plan, again.chat, again.policy), in_thread=True)
        shorter = await carry_out(again, planned, in_thread=True)
    except (LimitExceededError, UndecodableError):
        return None
    if shorter.compacted.forwarded.tokens >= carried.compacted.forwarded.tokens:
        return None
    return Again(again, shorter, lesson)


async def learn(call: Call, carried: Carried, overflow: Overflow) -> Lesson | None:
    """What the refusal of what was sent teaches; the models learn at once what is certain."""
    lesson = draw_lesson(overflow, call.policy, describe_sent(call, carried))
    if lesson is None:
        return None
    if _is_quoted(overflow, carried.compacted.body):  # whoever wrote that must not decide for others
        return replace(lesson, is_certain=False)
    if lesson.is_certain:
        await call.services.models.learn(call.model, call.believed_tokens, lesson)
    return lesson


async def confirm(again: Again, overflow: Overflow) -> None:
    """The second attempt has gone through: what was not certain is learned, unless a client may have written it."""
    if not again.lesson.is_certain and not _is_quoted(overflow, again.carried.compacted.body):
        await again.call.services.models.learn(again.call.model, again.call.believed_tokens, again.lesson)


def _narrow(call: Call, lesson: Lesson) -> Call:
    """The call within what the lesson says; and its summaries' own prompts, where they go to the same model."""
    policy, summariser = lesson.apply(call.policy), call.summariser
    if summariser.model == call.chat.model and call.settings.summary.upstream is None:
        limit = policy.limit_tokens(call.settings.summary.max_tokens)
        summariser = replace(summariser, window_tokens=min(summariser.window_tokens, limit))
    return replace(call, policy=policy, summariser=summariser)


def _is_quoted(overflow: Overflow, body: bytes) -> bool:
    """Whether what the refusal says of its limit stands in the request itself."""
    digits = str(overflow.limit or "")
    at = overflow.text.find(digits) if digits else -1
    if at < 0:
        return False
    snippet = overflow.text[max(at - QUOTE_CHARS, 0) : at + len(digits)]
    return orjson.dumps(snippet)[1:-1] in body
