"""A request at a glance: where it says that nothing is done, nothing is done."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    FREE,
    assistant,
    call,
    conversation,
    count,
    fill,
    result,
    session,
    system,
    transcripts,
    user,
)

from rules.conversation import RESULT_ROLES, Conversation, Message
from rules.pipeline.plan import apply, plan
from rules.pipeline.quick_check import Outline, is_far_below
from rules.policy import OnExceeded, OverflowStrategy, Policy
from rules.treatment import Budget

POLICY = Policy(
    context_window=4000,
    completion_reserve=400,
    on_exceeded=OnExceeded.FORWARD,
    result_budget=Budget(300),
    tidying=None,
    dedupe=False,
    summary_min_steps=2,
    prices=FREE,
)


def outline(talk: Conversation, slack: int = 0) -> Outline:
    """Bounds that are off by `slack` tokens."""
    results = [message for message in talk.messages if message.role in RESULT_ROLES]
    return Outline(
        [Message(message.role, tool_calls=message.tool_calls, answers=message.answers) for message in talk.messages],
        talk.tokens + slack,
        max((len(message.text.encode()) for message in results), default=0) + slack,
        max((sum(map(len, message.texts)) for message in results), default=0) + slack,
    )


def does_nothing(talk: Conversation, policy: Policy, request_max_tokens: int | None) -> bool:
    """Whether the plan leaves the transcript as it is, and asks for nothing."""
    planned = plan(talk, policy, count=count, request_max_tokens=request_max_tokens)
    outcome = apply(planned, policy, count=count)
    window = planned.window
    return outcome.conversation is talk and planned.prefetch is None and window.cut is None and not window.next_cut


@given(
    transcripts(),
    st.integers(0, 3000),
    st.integers(0, 200),
    st.none() | st.integers(1, 3000),
    st.builds(
        lambda high, strategy, budget: replace(
            POLICY, high_water=high, low_water=high / 2, overflow_strategy=strategy, result_budget=budget
        ),
        st.floats(0.2, 1.0),
        st.sampled_from(OverflowStrategy),
        st.sampled_from([Budget(300), Budget(100), Budget(3000, 256), Budget(10_000)]),
    ),
)
def test_what_is_far_below_is_left_alone(messages, fixed, slack, wanted, policy) -> None:
    """Whatever the transcript, the head and the policy: the plan does nothing where the glance says so."""
    talk = conversation(*messages, fixed_tokens=fixed)

    if is_far_below(outline(talk, slack), policy, request_max_tokens=wanted):
        assert does_nothing(talk, policy, wanted)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param((), True, id="nothing"),
        pytest.param(session(3), True, id="short"),
        pytest.param((system(fill("head", 2600)), user("Go.")), False, id="near the limit"),
        pytest.param(
            (*session(1), assistant(None, call("x")), result("x", fill("long", 310))), False, id="long result"
        ),
        pytest.param((*session(1), user(fill("long", 310))), True, id="long words of the user"),
        pytest.param((*session(1), assistant(None, call("x")), user("Hm.")), False, id="a call without a result"),
        pytest.param((*session(1), user("Hm."), result("x", "late")), False, id="a result without a call"),
    ],
)
def test_whatever_a_rule_might_touch_is_not_far_below(messages: tuple[Message, ...], *, expected: bool) -> None:
    """Size, results over their budget and calls that are not paired each rule it out."""
    assert is_far_below(outline(conversation(*messages)), POLICY) is expected


def test_a_budget_in_bytes_counts() -> None:
    """A result over max_tool_result_bytes would be truncated."""
    talk = conversation(*session(2, result_tokens=60))

    assert is_far_below(outline(talk), POLICY)
    assert not is_far_below(outline(talk), replace(POLICY, result_budget=Budget(300, 50)))
