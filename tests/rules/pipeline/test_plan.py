"""The plan: what it asks for, what was forwarded before a cut, and what has no effect on either."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    assistant,
    conversation,
    count,
    fill,
    screenshots,
    session,
    split_steps,
    system,
    user,
    valid_transcripts,
)
from support.policies import POLICY

from trimtab.rules.conversation import Conversation, Message, Role
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.pipeline.transcript_state import PREFILL_SHARE
from trimtab.rules.policy import OverflowStrategy, Policy, Prices, SummaryRole
from trimtab.rules.summary.request import Summary
from trimtab.rules.window.state import Window

SUMMARIZE = replace(POLICY, overflow_strategy=OverflowStrategy.SUMMARIZE)
DEAR = Prices(1, 0.001, 4)
"""Reading from the cache costs almost nothing, so no cut pays before the room is full."""
HEAD = (system(), user("Begin."))
LONG = session(60, call_tokens=10, result_tokens=150)


def plan_of(messages: Sequence[Message], policy: Policy = POLICY) -> Plan:
    return plan(conversation(*messages), policy, count=count)


def forward(planned: Plan, policy: Policy = POLICY) -> Conversation:
    """The messages that a plan forwards. Each summary is named by its key."""
    key = planned.request.key if planned.request else ""
    return apply(planned, policy, count=count, summary=Summary(f"Summary {key}.", by_model=True)).conversation


def grow(messages: Sequence[Message], policy: Policy) -> Iterator[tuple[Plan, Plan]]:
    plans = [plan_of(messages[: step.stop], policy) for step in split_steps(messages)]
    return pairwise(plans)


def test_without_a_cut_nothing_is_put_off() -> None:
    assert plan_of(session(2)).put_off() is None


@pytest.mark.parametrize("role", SummaryRole)
def test_a_cut_put_off_forwards_what_was_forwarded(role: SummaryRole) -> None:
    """First come the bytes of the previous request, then the new messages. So no upstream's cache is lost.

    Nothing is asked for ahead: the text that is wanted is that of the cut that was put off.
    """
    policy, messages = replace(POLICY, summary_role=role), session(40, call_tokens=4, result_tokens=290)
    put_off = 0
    for before, after in grow(messages, policy):
        if before.window.cuts != after.window.cuts:
            earlier = after.put_off()
            assert (earlier.request, earlier.prefetch) == (before.request, None)
            sent, new = forward(before, policy).messages, len(after.original.messages) - len(before.original.messages)
            assert forward(earlier, policy).messages == (*sent, *after.conversation.messages[-new:])
            put_off += 1
    assert put_off >= 2


def test_a_summary_is_asked_for_ahead_under_the_key_of_its_cut() -> None:
    """Every cut that waited until the room was full was announced, with the same request that the cut makes."""
    made = 0
    for before, after in grow(LONG, replace(SUMMARIZE, prices=DEAR)):
        if before.window.cuts != after.window.cuts:
            assert before.prefetch == after.request is not None
            made += 1
    assert made >= 3


PRUNE = replace(POLICY, overflow_strategy=OverflowStrategy.PRUNE)


@pytest.mark.parametrize(
    ("messages", "policy"),
    [
        (LONG, POLICY),
        (session(20, call_tokens=4, result_tokens=900), replace(PRUNE, dedupe=True, pin_instruction=True)),
        ((*HEAD, *screenshots(30)), PRUNE),
    ],
)
def test_the_past_is_broken_from_the_first_request_on_that_forwards_a_message_otherwise(
    messages: tuple[Message, ...], policy: Policy
) -> None:
    """Not by what a rule does to a message from its first request on. And it stays broken."""
    is_broken = False
    for before, after in grow(messages, policy):
        sent, more = forward(before, policy).messages, forward(after, policy).messages
        is_broken = is_broken or more[: len(sent)] != sent
        assert after.breaks_past is is_broken
    assert is_broken


def test_a_cut_put_off_breaks_the_past_if_it_was_in_effect() -> None:
    """Its summary may be lost. If it is made just now, what was forwarded stays."""
    made, stood = 0, 0
    for before, after in grow(LONG, POLICY):
        earlier = after.put_off()
        if earlier is None:
            continue
        is_new, was_cut = before.window.cuts != after.window.cuts, bool(before.window.cuts)
        assert earlier.breaks_past is (was_cut or not is_new)
        made, stood = made + is_new, stood + (not is_new)
    assert made >= 2
    assert stood >= 2


def test_the_prefix_of_a_cut_is_what_is_forwarded_before_it() -> None:
    """After the prefix is what the client sent from there on. The prefix itself is in the upstream's cache."""
    policy = replace(POLICY, prices=DEAR)
    found = 0
    for _, after in grow(LONG, policy):
        at, sent = after.window.next_cut, forward(after, policy)
        if at is not None:
            prefix = after.find_prefix(sent, at)
            assert (*(prefix.messages if prefix else ()), *after.conversation.messages[at:]) == sent.messages
            found += 1
    assert found >= 2


def test_the_prefix_ends_at_its_own_place() -> None:
    """Equal messages may be one object, because the codec remembers them. Each position is still separate."""
    again = assistant("I will look again.")
    messages = (system(), user("task"), again, user("go"), again, user("on"), again)
    planned = plan_of(messages)
    for at in (2, 4, 6):
        prefix = planned.find_prefix(planned.conversation, at)
        assert prefix.messages == messages[:at]
        assert len(prefix.origins) == at


def test_a_prefix_that_is_not_there_is_not_found() -> None:
    """If the message at the cut is not forwarded, no prefix ends there."""
    planned = plan_of(LONG)
    assert planned.find_prefix(conversation(*session(3)), 10) is None
    assert planned.find_prefix(conversation(*[user()] * len(LONG)), 10) is None


@given(messages=valid_transcripts(), role=st.sampled_from(SummaryRole), policy=st.sampled_from([POLICY, SUMMARIZE]))
def test_no_more_is_forwarded_than_was_reserved(
    messages: tuple[Message, ...], role: SummaryRole, policy: Policy
) -> None:
    policy = replace(policy, summary_role=role, context_window=1600)
    planned = plan_of((*HEAD, *messages), policy)
    summary = Summary(fill("very long", 900), by_model=True)
    sent = apply(planned, policy, count=count, summary=summary).conversation
    assert sent.tokens <= planned.reserved_tokens
    if planned.window == Window(
        task=1, next_cut=planned.window.next_cut, prefetch_tokens=planned.window.prefetch_tokens
    ):
        assert sent.tokens == planned.reserved_tokens


def test_the_beginning_of_an_answer_moves_nothing() -> None:
    """A client may write it (a prefill); the next request has the whole answer in its place."""
    policy, messages, cuts = replace(POLICY, prices=DEAR), [*HEAD], set[int]()
    prefill = assistant(fill("{", policy.limit_tokens() // PREFILL_SHARE - 8))
    for number in range(40):
        alone, begun = plan_of(messages, policy), plan_of([*messages, prefill], policy)
        assert begun.window == alone.window
        assert begun.here == alone.hashes[-1]
        forwarded = forward(begun, policy).messages
        assert forwarded[:-1] == forward(alone, policy).messages
        assert forwarded[-1] is prefill
        cuts.add(len(alone.window.cuts))
        messages += [assistant("{" + fill(str(number), 40 * (number % 4))), user(fill(f"{number}?", 60))]
    assert len(cuts) > 1


def test_a_long_beginning_of_an_answer_has_to_fit() -> None:
    messages = [*HEAD, *session(12, call_tokens=10, result_tokens=150)]
    begun = plan_of([*messages, assistant(fill("x", POLICY.context_window // 3))])
    assert begun.window != plan_of(messages).window


# A plan that keeps the number of messages: every message stays; the results before a cut become placeholders.


def test_the_number_of_messages_stays_and_results_before_the_cut_go() -> None:
    before = conversation(user("task"), *session(40, result_tokens=200)[2:])
    cut = plan(before, POLICY, count=count)
    outcome = apply(cut.keep_messages(), POLICY, count=count)
    after = outcome.conversation.messages
    changed = [at for at, (old, new) in enumerate(zip(before.messages, after, strict=True)) if old is not new]

    assert cut.window.cut is not None
    assert [message.role for message in after] == [message.role for message in before.messages]
    assert changed
    assert all(before.messages[at].role is Role.TOOL for at in changed)
    assert max(changed) < cut.window.cut.at
    assert outcome.conversation.tokens < before.tokens / 2
