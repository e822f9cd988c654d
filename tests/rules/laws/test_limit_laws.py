"""The laws of a policy's own limits: soft limits, shares of sections, newest steps, user turns."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import (
    FREE,
    KeptStates,
    assistant,
    conversation,
    count,
    fill,
    measure,
    session,
    system,
    transcripts,
    user,
)

from trimtab.rules.conversation import Message, Outcome
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import Policy, SectionShares
from trimtab.rules.summary.request import Summary
from trimtab.rules.window.cut_decision import Fold
from trimtab.rules.window.state import Window

POLICY = Policy(
    context_window=32_000,
    completion_reserve=2000,
    high_water=0.8,
    low_water=0.4,
    anchor_share=0.06,
    summary_max_tokens=300,
    summary_min_steps=3,
    prices=FREE,
)
OWN_LIMITS = st.builds(
    replace,
    st.just(POLICY),
    compact_at_tokens=st.sampled_from([None, 300, 1200]),
    sections=st.sampled_from([None, SectionShares(recent=0.05), SectionShares(summary=0.01, recent=0.1)]),
    keep_recent_steps=st.sampled_from([None, 0, 3]),
    max_turns=st.sampled_from([None, 2, 5]),
)


def run(messages: Sequence[Message], policy: Policy, kept: KeptStates | None = None) -> tuple[Plan, Outcome]:
    """The decisions about a transcript, and the conversation that is forwarded. `kept` only saves time."""
    planned = plan(conversation(*messages), policy, count=count, states=kept)
    summary = Summary("What was done so far.", by_model=True) if planned.request else None
    return planned, apply(planned, policy, count=count, summary=summary, states=kept)


def states(messages: Sequence[Message], policy: Policy, limit: int) -> list[Window]:
    """The window after each message."""
    room = structs.replace(measure(messages, policy, limit=limit), soft=policy.soft_limit_tokens(limit))
    folded = Fold(room, policy)
    found = []
    for message in messages:
        folded.add(message)
        found.append(folded.window)
    return found


@given(messages=transcripts(), policy=OWN_LIMITS, limit=st.sampled_from([1200, 4000]))
def test_no_message_changes_what_was_decided_before_it(
    messages: tuple[Message, ...], policy: Policy, limit: int
) -> None:
    """Cuts and pruning only go on, and a window that stays sends the same beginning."""
    messages = (system(), user("Mend the build."), *messages)
    found = states(messages, policy, limit)
    for stop, (before, after) in enumerate(pairwise(found), start=1):
        assert states(messages[:stop], policy, limit)[-1] == before
        assert after.prune_stop >= before.prune_stop
        assert [cut.at for cut in after.cuts[: len(before.cuts)]] == [cut.at for cut in before.cuts]


@pytest.mark.parametrize("soft", [2000, 5000, 12_000])
def test_a_prompt_that_reaches_the_soft_limit_is_cut_there(soft: int) -> None:
    """It stays below it from then on, but for the newest step. Cuts are rare: each frees a part of the gap."""
    policy = replace(POLICY, context_window=128_000, compact_at_tokens=soft)
    messages = session(150, call_tokens=20, result_tokens=200)
    sizes, cuts, kept = [], 0, KeptStates()
    for stop in range(2, len(messages) + 1, soft // 500):  # several looks between two cuts
        planned, outcome = run(messages[:stop], policy, kept)
        sizes.append(outcome.conversation.tokens)
        cuts = len(planned.window.cuts)
    assert max(sizes) <= soft + 240
    assert max(sizes) >= soft * 0.8
    assert 1 <= cuts <= 36_000 / ((soft - soft // 16) * 0.125)


def test_a_larger_request_passes() -> None:
    """A soft limit never shortens or refuses, and it has no effect if the head leaves it no room."""
    huge = [system(), user("Go."), assistant("Yes."), user(fill("huge", 20_000))]
    policy = replace(POLICY, compact_at_tokens=1000)
    planned, outcome = run(huge, policy)
    assert outcome.conversation is planned.original
    long_head = [system(fill("head", 900)), *session(60)[1:]]
    assert run(long_head, policy)[1].conversation.messages == tuple(long_head)


def test_a_soft_limit_above_high_water_changes_nothing() -> None:
    """High water is a threshold then, too. And shares that give the whole limit together change nothing."""
    messages, both = session(200, result_tokens=200), replace(POLICY, cuts_at_threshold=True)
    pairs = [
        (replace(both, compact_at_tokens=29_000), both),
        (replace(POLICY, sections=SectionShares(summary=0.1)), POLICY),
    ]
    for policy, plain in pairs:
        for stop in (60, 250, 402):
            assert run(messages[:stop], policy)[1] == run(messages[:stop], plain)[1]


def test_a_summary_has_its_share_at_most() -> None:
    """Its size is reserved in the cut."""
    policy = replace(POLICY, sections=SectionShares(summary=0.002, recent=0.1))
    window = run(session(150, result_tokens=200), policy)[0].window
    assert window.cut.reserved_tokens == int(policy.limit_tokens() * 0.002)


@pytest.mark.parametrize("number", [0, 1, 4, 9])
def test_the_newest_steps_stay_if_they_fit(number: int) -> None:
    """They are sent as they are. If the window is too small for them, they are cut."""
    policy = replace(POLICY, keep_recent_steps=number)
    messages, kept = session(150, result_tokens=300), KeptStates()
    for stop in range(4, len(messages), 26):
        planned, outcome = run(messages[:stop], policy, kept)
        newest = messages[:stop][-2 * number :] if number else ()
        assert outcome.conversation.messages[len(outcome.conversation.messages) - len(newest) :] == tuple(newest)
    planned, outcome = run(session(20, result_tokens=3000), replace(policy, keep_recent_steps=15))
    assert outcome.conversation.tokens <= planned.limit
    assert planned.window.cut is not None


@pytest.mark.parametrize(("number", "left"), [(2, 1), (5, 3), (8, 4)])
def test_the_newest_half_of_too_many_turns_stays(number: int, left: int) -> None:
    """Beside the task statement there are never more than the policy allows, and cuts are rare."""
    policy = replace(POLICY, max_turns=number)
    messages = [system(), user("Ask me.")]
    seen, kept = [], KeptStates()
    for turn in range(40):
        messages += [assistant(fill(f"answer {turn}", 200)), user(fill(f"question {turn}", 60))]
        planned, outcome = run(messages, policy, kept)
        seen.append(sum(message.role == "user" for message in outcome.conversation.messages) - 1)
        assert outcome.conversation.messages[-1] is messages[-1]
    assert max(seen) == number
    assert min(seen[number:]) == left
    assert len(planned.window.cuts) <= 40 / (number - left + 1)


def test_turns_that_cost_less_than_a_summary_stay() -> None:
    """A cut that saves nothing is not made."""
    messages = [system(), *[user("Go."), assistant("Yes.")] * 20, user("Go.")]
    outcome = run(messages, replace(POLICY, max_turns=30))[1]
    assert outcome.conversation.messages == tuple(messages)
