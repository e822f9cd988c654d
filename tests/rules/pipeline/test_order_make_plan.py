"""plan(): all rules in their order."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    KeptStates,
    assistant,
    call,
    conversation,
    count,
    fill,
    result,
    session,
    system,
    user,
)
from support.policies import POLICY

from trimtab.rules.conversation import Conversation, Message, Origin, Outcome
from trimtab.rules.pipeline import order
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import Budget, OnExceeded, OverflowStrategy, Policy
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.markers import SUMMARY_END

SUMMARY = "The build was mended in part."


def run(before: Conversation, policy: Policy = POLICY, text: str = SUMMARY) -> tuple[Plan, Outcome]:
    planned = plan(before, policy, count=count)
    summary = Summary(text, by_model=True) if planned.request and planned.request.asks_model else None
    return planned, apply(planned, policy, count=count, summary=summary)


def rules_of(outcome: Outcome) -> list[str]:
    return [decision.rule for decision in outcome.decisions]


def test_the_rules_act_in_order() -> None:
    """The order is pairing, truncation, pruning, and then the summary."""
    messages = (*session(3, result_tokens=900), result("none"), *session(40, call_tokens=2, result_tokens=280)[2:])
    acted = {tuple(rules_of(run(conversation(*messages[:stop]))[1])) for stop in range(0, len(messages), 3)}
    order = ("pairing", "truncate", "prune", "summarise", "digest")
    assert {rule for rules in acted for rule in rules} == {*order[:4]}
    assert all(list(rules) == sorted(rules, key=order.index) for rules in acted)


def test_a_summary_is_asked_for_where_a_cut_wants_one() -> None:
    """The request names the prefix at the cut. The given text is forwarded, or the digest if there is none."""
    before = conversation(*session(40))
    planned, outcome = run(before)
    assert planned.request is not None
    assert rules_of(outcome) == ["summarise"]
    assert outcome.conversation.messages[1].texts[1].endswith(f"\n\n{SUMMARY}\n\n{SUMMARY_END}")
    without = apply(planned, POLICY, count=count)
    assert rules_of(without) == ["digest"]
    assert "## Tool calls" in without.conversation.messages[1].text


def test_no_wish_is_told_twice() -> None:
    """With the digest, each user message is forwarded verbatim or listed: never both, and never neither."""
    turns = ((user(f"Wish number {turn}."), assistant(fill(f"done {turn}", 60))) for turn in range(80))
    messages = (system(), user("Begin."), *(message for turn in turns for message in turn))
    policy = replace(POLICY, overflow_strategy=OverflowStrategy.PRUNE, summary_max_tokens=2000)
    cuts = set()
    for stop in range(40, len(messages), 9):
        planned, outcome = run(conversation(*messages[:stop]), policy)
        texts = [text for message in outcome.conversation.messages for text in message.texts]
        told = "\n".join(texts)
        if planned.window.cut and "[trimtab: omitted " not in told:
            cuts.add(planned.window.cut.kept)
            assert [told.count(f"Wish number {turn}.") for turn in range((stop - 1) // 2)] == [1] * ((stop - 1) // 2)
    assert len(cuts) >= 2


def test_what_fits_the_window_is_forwarded_though_it_exceeds_the_limit() -> None:
    """One example is a request that fits only with a shorter last message, if that is allowed."""
    policy = replace(POLICY, context_window=4000, completion_reserve=1000)
    for tokens, on_exceeded in ((3500, OnExceeded.ERROR), (9000, OnExceeded.TRUNCATE)):
        before = conversation(user("task"), user(fill("last", tokens)))
        _, outcome = run(before, replace(policy, on_exceeded=on_exceeded))
        assert outcome.conversation.tokens <= 4000
    with pytest.raises(LimitExceededError):
        run(conversation(user("task"), user(fill("last", 4100))), replace(policy, on_exceeded=OnExceeded.ERROR))
    head = conversation(system(fill("head", 3100)), user("task"), user(fill("last", 2000)))
    _, outcome = run(head, replace(policy, on_exceeded=OnExceeded.TRUNCATE))
    assert 3000 < outcome.conversation.tokens <= 4000


def parallel(sizes: Sequence[int]) -> tuple[Message, ...]:
    """One step: a call for each size, and results of this many tokens, in lines that differ."""
    calls = [call(f"p{number}", "read") for number in range(len(sizes))]
    texts = [
        "".join(f"{number}: line {line} of what was read\n" for line in range(size // 7))
        for number, size in enumerate(sizes)
    ]
    return (assistant("I read all.", *calls), *(result(one.id, text) for one, text in zip(calls, texts, strict=True)))


def test_a_step_larger_than_the_window_is_shortened_once_and_for_all() -> None:
    """Each result keeps some text and says what is missing. In later requests it is the same byte for byte.

    This holds until a cut is due. Here high water is above the size of such a shortened step.
    """
    step = parallel([3000, 80, 1500, 9000, 2000, 3000])
    later = (assistant("Now I know.", call("n")), result("n", "fine"), assistant("And this.", call("m")), result("m"))
    before = (system(), user("Mend the build."), *step)
    policy = replace(POLICY, on_exceeded=OnExceeded.TRUNCATE, result_budget=Budget(2500), high_water=0.95)
    first = run(conversation(*before), policy)[1]
    assert rules_of(first) == ["truncate", "exceeded"]
    sent = first.conversation.messages
    assert first.conversation.tokens <= policy.limit_tokens()
    assert (sent[:3], sent[4]) == (before[:3], before[4])
    assert all(40 < message.tokens < 1000 for message in (sent[3], *sent[5:]))
    for short, whole in zip((sent[3], *sent[5:]), (step[1], *step[3:]), strict=True):
        lines = whole.text.splitlines()
        told = re.search(r"\[trimtab: omitted lines (\d+)-(\d+) \(~(\d+) tokens\)", short.text)
        shown = [line for line in short.text.splitlines() if line in lines]
        assert int(told[2]) - int(told[1]) + 1 == len(lines) - len(shown)
        assert int(told[3]) == pytest.approx(whole.tokens - short.tokens, rel=0.1)
    for stop in (2, 4):
        outcome = run(conversation(*before, *later[:stop]), policy)[1]
        assert outcome.conversation.messages[: len(sent)] == sent
        assert rules_of(outcome) == ["truncate", "exceeded"]


def test_the_same_request_has_the_same_plan() -> None:
    """If the same plan is asked for again, no work is done. A plan for anything else is computed."""
    before = conversation(*session(20, result_tokens=600))
    states = KeptStates()
    first = plan(before, POLICY, count=count, states=states)
    again = conversation(*session(20, result_tokens=600))

    assert plan(again, POLICY, count=count, states=states) is first
    elsewhere = replace(again, origins=tuple(Origin(index + 1, index + 2) for index in range(len(again.messages))))
    for other, policy, max_tokens in (
        (again, POLICY, 100),
        (again, replace(POLICY, context_window=3300), None),
        (replace(again, fixed_tokens=7), POLICY, None),
        (elsewhere, POLICY, None),
    ):
        planned = plan(other, policy, count=count, request_max_tokens=max_tokens, states=states)
        assert planned is not first
        assert planned == plan(other, policy, count=count, request_max_tokens=max_tokens)


@given(
    st.lists(st.tuples(st.sampled_from([system, user, assistant]), st.integers(0, 60)), max_size=8),
    st.integers(100, 3000),
    st.sampled_from([None, 1, 300]),
)
def test_a_short_transcript_without_tools_is_planned_as_any_other(said, window, max_tokens) -> None:
    before = conversation(*(make("word " * length) for make, length in said), fixed_tokens=7)
    policy = replace(POLICY, context_window=window)
    quick = plan(before, policy, count=count, request_max_tokens=max_tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "FEW_MESSAGES", -1)
        whole = plan(before, policy, count=count, request_max_tokens=max_tokens)
    assert quick == whole
    if quick.is_empty:
        assert apply(quick, policy, count=count) == apply(whole, policy, count=count) == Outcome(before)


def test_what_can_be_acted_on_is_looked_at() -> None:
    """That is: calls, results, images, and texts that are long for the window."""
    window = replace(POLICY, context_window=4000)
    assert plan(conversation(user("Hello.")), window, count=count).is_empty
    for messages in (session(1), [user("word " * 3000)], [user("x") for _ in range(order.FEW_MESSAGES + 1)]):
        assert not plan(conversation(*messages), window, count=count).is_empty
