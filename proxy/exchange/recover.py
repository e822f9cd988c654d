"""An upstream has refused a prompt for its length: learn from it, and plan again.

Law: once for each request. Where nothing shorter can be sent, the refusal stands.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import orjson

from proxy.compaction.offload import run_work
from proxy.exchange.observe import describe_sent
from proxy.exchange.summary import Call, Carried, carry_out, make_call
from proxy.state.models.lessons import Lesson, draw_lesson
from proxy.wire.codec import UndecodableError
from proxy.wire.overflow.classify import Overflow
from rules.pipeline.plan import LimitExceededError


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
    if _is_quoted(overflow, call.chat.body):  # whoever wrote that must not decide for others
        return replace(lesson, is_certain=False)
    if lesson.is_certain:
        await call.services.models.learn(call.model, call.believed_tokens, lesson)
    return lesson


def confirm(again: Again, overflow: Overflow) -> None:
    """The second attempt has gone through: a guess is learned, where nobody knows better and no client has made it up.

    A window that the upstream tells, when asked or in a refusal, is better than a guess.
    """
    call, lesson = again.call, again.lesson
    facts = call.services.models.recall(call.model)
    is_told = call.settings.context_window == "auto" and facts.window_tokens is not None and not facts.from_catalogue
    if not (lesson.is_certain or is_told or _is_quoted(overflow, again.call.chat.body)):
        call.services.models.learn_soon(call.model, call.believed_tokens, lesson)


def _narrow(call: Call, lesson: Lesson) -> Call:
    """The call within what the lesson says; and its summaries' own prompts, where they go to the same model."""
    policy, summariser = lesson.apply(call.policy), call.summariser
    if summariser.model == call.chat.model and call.settings.summary.upstream is None:
        limit = policy.limit_tokens(call.settings.summary.max_tokens)
        summariser = replace(summariser, window_tokens=min(summariser.window_tokens, limit))
    return replace(call, policy=policy, summariser=summariser)


def _is_quoted(overflow: Overflow, body: bytes) -> bool:
    """Whether the telling words of the refusal stand in the request itself, however that writes its JSON."""
    with suppress(orjson.JSONDecodeError, TypeError):
        is_plain = b"\\u" not in body and b"\\/" not in body
        body = body if is_plain else orjson.dumps(orjson.loads(body))
    return any(orjson.dumps(words)[1:-1] in body for words in overflow.telling_words)
