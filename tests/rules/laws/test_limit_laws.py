"""The laws of a policy's own limits: soft limits, shares of sections, newest steps, user turns."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.builders import (
    FREE,
    KeptStates,
    assistant,
    conversation,
    count,
    fill,
    session,
    system,
    user,
)

from trimtab.rules.conversation import Message, Outcome
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import Policy, SectionShares
from trimtab.rules.summary.request import Summary

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


def run(messages: Sequence[Message], policy: Policy, kept: KeptStates | None = None) -> tuple[Plan, Outcome]:
    """The decisions about a transcript, and the conversation that is forwarded. `kept` only saves time."""
    planned = plan(conversation(*messages), policy, count=count, states=kept)
    summary = Summary("What was done so far.", by_model=True) if planned.request else None
    return planned, apply(planned, policy, count=count, summary=summary, states=kept)


@pytest.mark.parametrize("soft", [2000, 12_000])
def test_a_prompt_that_reaches_the_soft_limit_is_cut_there(soft: int) -> None:
    """It stays below it from then on, but for the newest step. Cuts are rare: each frees a part of the gap."""
    policy = replace(POLICY, context_window=128_000, compact_at_tokens=soft)
    messages = session(100, call_tokens=20, result_tokens=200)
    sizes, cuts, kept = [], 0, KeptStates()
    for stop in range(2, len(messages) + 1, soft // 500):  # several looks between two cuts
        planned, outcome = run(messages[:stop], policy, kept)
        sizes.append(outcome.conversation.tokens)
        cuts = len(planned.window.cuts)
    assert max(sizes) <= soft + 240
    assert max(sizes) >= soft * 0.8
    assert 1 <= cuts <= 24_000 / ((soft - soft // 16) * 0.125)


def test_a_summary_has_its_share_at_most() -> None:
    policy = replace(POLICY, sections=SectionShares(summary=0.002, recent=0.1))
    window = run(session(150, result_tokens=200), policy)[0].window
    assert window.cut.reserved_tokens == int(policy.limit_tokens() * 0.002)


@pytest.mark.parametrize("number", [1, 9])
def test_the_newest_steps_stay_if_they_fit(number: int) -> None:
    """They are sent as they are. If the window is too small for them, they are cut."""
    policy = replace(POLICY, keep_recent_steps=number)
    messages, kept = session(150, result_tokens=300), KeptStates()
    for stop in range(4, len(messages), 26):
        planned, outcome = run(messages[:stop], policy, kept)
        newest = messages[:stop][-2 * number :]
        assert outcome.conversation.messages[-len(newest) :] == tuple(newest)
    planned, outcome = run(session(20, result_tokens=3000), replace(policy, keep_recent_steps=15))
    assert outcome.conversation.tokens <= planned.limit
    assert planned.window.cut is not None


@pytest.mark.parametrize(("number", "left"), [(2, 1), (5, 3)])
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
