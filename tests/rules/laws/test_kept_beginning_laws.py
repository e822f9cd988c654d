"""Transcripts whose beginning must stay: a message keeps what is before it, or the upstream holds earlier messages."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    KeptStates,
    assistant,
    broken_transcripts,
    conversation,
    count,
    fill,
    result,
    session,
    system,
    user,
    valid_transcripts,
)
from support.policies import POLICY

from trimtab.rules.conversation import Conversation, Message, Outcome, Role
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.policy import Policy
from trimtab.rules.prefix import hash_prefixes
from trimtab.rules.summary.request import Summary

MEMO = replace(assistant("What was said before, for the server alone."), keeps_before=True)
SMALL = replace(POLICY, context_window=4000, completion_reserve=500)


def forward(before: Conversation, policy: Policy = SMALL, states: KeptStates | None = None) -> Outcome:
    planned = plan(before, policy, count=count, states=states)
    summary = Summary("SUMMARY", by_model=True) if planned.request and planned.request.asks_model else None
    return apply(planned, policy, count=count, summary=summary, states=states)


def pairs(messages: tuple[Message, ...]) -> tuple[list[str], list[str]]:
    calls = [one.id for message in messages for one in message.tool_calls]
    return sorted(calls), sorted(message.answers for message in messages if message.answers is not None)


@given(earlier=valid_transcripts(8), steps=st.integers(0, 60), size=st.integers(10, 400))
def test_everything_up_to_the_message_that_keeps_it_stays(earlier: tuple[Message, ...], steps: int, size: int) -> None:
    """The messages before it, and the message itself, are forwarded as they came, however much is cut after them."""
    before = conversation(*earlier, MEMO, user("Go on."), *session(steps, result_tokens=size), user("And now?"))
    # What stays must leave room for the rest; otherwise the request is refused.
    if sum(message.tokens for message in (*earlier, MEMO)) > 1000:
        return
    outcome = forward(before)
    kept = len(earlier) + 1
    assert outcome.conversation.messages[:kept] == before.messages[:kept]
    assert outcome.conversation.messages[-1] == before.messages[-1]
    calls, answered = pairs(outcome.conversation.messages)
    assert calls == answered


def test_what_comes_after_it_is_cut() -> None:
    """Only the messages behind it are summarised, and the task is the first user message behind it."""
    before = conversation(
        system(), user("Old task."), MEMO, user("New task."), *session(60, result_tokens=100), user("And now?")
    )
    outcome = forward(before)
    assert [decision.rule for decision in outcome.decisions][-1] in {"summarise", "digest"}
    assert outcome.conversation.messages[:3] == before.messages[:3]
    assert outcome.conversation.messages[3].texts[0] == "New task."
    assert outcome.conversation.tokens < before.tokens / 2


def test_transcripts_with_another_beginning_have_other_hashes() -> None:
    """A system message alone may differ, because it may hold a timestamp; what a message keeps may not."""
    tail = session(3)
    one = hash_prefixes((user("One."), MEMO, *tail))
    other = hash_prefixes((user("Other."), MEMO, *tail))
    assert one[-1] != other[-1]
    assert hash_prefixes((system("9:00"), *tail))[-1] == hash_prefixes((system("9:01"), *tail))[-1]


@given(messages=broken_transcripts(), longer=st.booleans())
def test_what_continues_a_transcript_of_the_upstream_loses_nothing(
    messages: tuple[Message, ...], *, longer: bool
) -> None:
    """No message is dropped, added or moved, whatever is unanswered here; results may only get shorter."""
    extra = (result("elsewhere", fill("result", 9000)),) if longer else ()
    before = replace(conversation(*extra, *messages), continues=True)
    outcome = forward(before)
    after = outcome.conversation.messages
    assert [(one.role, one.answers, one.tool_calls) for one in after] == [
        (one.role, one.answers, one.tool_calls) for one in before.messages
    ]
    changed = [one for one, old in zip(after, before.messages, strict=True) if one is not old]
    assert all(one.role is Role.TOOL for one in changed)
    assert len(changed) >= len(extra)
    assert outcome.conversation.tokens <= before.tokens
