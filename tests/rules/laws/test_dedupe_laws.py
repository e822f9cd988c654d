"""Deduplication in the pipeline: the target of every pointer is forwarded in full, whatever is cut and pruned."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    FREE,
    assistant,
    call,
    conversation,
    count,
    rereading,
    result,
    split_steps,
    transcripts,
    user,
)
from support.checker import expand, read_pointer

from trimtab.rules.conversation import Conversation, Message, Outcome, Role
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import Budget, OnExceeded, OverflowStrategy, Policy
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.markers import POINTER

POLICY = Policy(
    context_window=2400,
    completion_reserve=0,
    on_exceeded=OnExceeded.FORWARD,
    result_budget=Budget(300),
    protect_turns=0,
    keep_user_tokens=200,
    summary_max_tokens=200,
    summary_min_steps=3,
    high_water=0.8,
    low_water=0.4,
    anchor_share=0.06,
    prices=FREE,
)


def results_of(forwarded: Conversation) -> list[Message]:
    return [message for message in forwarded.messages if message.role is Role.TOOL]


def run(messages: Sequence[Message], policy: Policy = POLICY) -> tuple[Plan, Outcome]:
    planned = plan(conversation(*messages), policy, count=count)
    summary = Summary("The build was mended in part.", by_model=True) if planned.request else None
    return planned, apply(planned, policy, count=count, summary=summary)


def check_targets(planned: Plan, forwarded: Conversation, *, last_may_shrink: bool = False) -> int:
    """The number of pointers that are forwarded. Fails unless each gives exactly the text that it replaced."""
    sent, full = results_of(forwarded), results_of(planned.conversation)
    full = full[len(full) - len(sent) :]
    pointers = 0
    for rank, message in enumerate(sent):
        back = read_pointer(message.text) if message.edited and not full[rank].text.startswith(POINTER) else 0
        if back:
            assert back <= rank
            assert sent[rank - back].texts == full[rank - back].texts
            if not (last_may_shrink and message in forwarded.messages[split_steps(forwarded.messages)[-1].start :]):
                assert expand(list(sent[rank - back].texts), message.text) == list(full[rank].texts)
            pointers += 1
    return pointers


@given(
    messages=transcripts(30),
    window=st.sampled_from([800, 1200, 2400, 100_000]),
    strategy=st.sampled_from(OverflowStrategy),
    on_exceeded=st.sampled_from([OnExceeded.FORWARD, OnExceeded.TRUNCATE]),
)
def test_every_pointer_stands_for_what_it_replaced(
    messages: tuple[Message, ...], window: int, strategy: OverflowStrategy, on_exceeded: OnExceeded
) -> None:
    """Wherever cut and prune have moved, the target is forwarded in full. With the diff, it gives the exact text.

    The last step may lose text if nothing else fits. Then a diff in it may be shortened, but never a target.
    """
    policy = replace(POLICY, context_window=window, overflow_strategy=strategy, on_exceeded=on_exceeded)
    try:
        planned, outcome = run(messages, policy)
    except LimitExceededError:
        return
    shortened = any(decision.rule == "exceeded" for decision in outcome.decisions)
    check_targets(planned, outcome.conversation, last_may_shrink=shortened)


def test_pointers_and_their_targets_move_with_the_cut() -> None:
    """A long session reads the same files: many pointers, many cuts, and after each cut the targets are forwarded."""
    messages = rereading(80)
    for strategy in (OverflowStrategy.AUTO_COMPACT, OverflowStrategy.PRUNE):
        policy = replace(POLICY, overflow_strategy=strategy, context_window=3200)
        starts = set()
        pointers = 0
        for stop in range(2, len(messages) + 1, 7):
            planned, outcome = run(messages[:stop], policy)
            pointers += check_targets(planned, outcome.conversation)
            starts.add((planned.window.cut.at if planned.window.cut else 0, planned.window.prune_stop))
        assert len(starts) >= 3
        assert pointers > 20


def test_what_is_shortened_at_last_is_no_target() -> None:
    """If the last step is shortened to fit, no pointer refers to a result that lost text."""
    policy = replace(POLICY, result_budget=Budget(4000), on_exceeded=OnExceeded.TRUNCATE)
    large = "\n".join(f"line {number} of what was read this time" for number in range(160))
    last = [assistant(None, call("a"), call("b")), result("a", large), result("b", large)]
    planned, outcome = run([user("go"), *last], policy)
    assert [decision.rule for decision in outcome.decisions] == ["exceeded"]
    assert outcome.conversation.tokens <= planned.limit
    _, outcome = run(
        [user("go"), assistant(None, call("c")), result("c", large), *last], replace(policy, context_window=8000)
    )
    assert [read_pointer(message.text) for message in results_of(outcome.conversation)] == [0, 1, 2]
