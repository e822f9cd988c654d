"""The laws of images: which are removed, and when, over whole sessions of screenshots."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import (
    IMAGE,
    KeptStates,
    assistant,
    conversation,
    count,
    fill,
    screenshots,
    system,
    user,
    write_all,
)
from support.checker import check_transcript

from trimtab.rules.conversation import Media, Message, Outcome
from trimtab.rules.economy import Economy, find_budgets
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import OverflowStrategy, Policy, Prices
from trimtab.rules.summary.request import Summary

POLICY = Policy(
    context_window=3200,
    completion_reserve=200,
    summary_max_tokens=200,
    prices=Prices(),
    high_water=0.8,
    low_water=0.4,
    anchor_share=0.06,
)
IMAGE_TOKENS = 1105
"""The cost of a screenshot of 1280 by 800 for gpt-4o."""


def run(messages: Sequence[Message], policy: Policy = POLICY, kept: KeptStates | None = None) -> tuple[Plan, Outcome]:
    """The decisions about a transcript, and the conversation that is forwarded. `kept` only saves time."""
    planned = plan(conversation(*messages), policy, count=count, states=kept)
    summary = Summary("What was done so far.", by_model=True) if planned.request else None
    return planned, apply(planned, policy, count=count, summary=summary, states=kept)


def forwarded_images(outcome: Outcome) -> list[Media]:
    return [part for message in outcome.conversation.messages for part in message.media if not part.is_removed]


def priced(messages: Sequence[Message], tokens: int = IMAGE_TOKENS) -> tuple[Message, ...]:
    """The messages, with images that cost this many tokens."""
    return tuple(
        replace(
            message,
            media=tuple(structs.replace(part, tokens=tokens) for part in message.media),
            tokens=message.tokens + sum(tokens - part.tokens for part in message.media),
        )
        for message in messages
    )


def count_unchanged(before: Sequence[Message], after: Sequence[Message]) -> int:
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    return same


@pytest.mark.parametrize(
    ("window", "keep", "as_user", "steps"),
    [(32_000, None, False, 80), (32_000, 3, True, 80)],
)
def test_a_session_of_screenshots_fits_its_window(window: int, keep: int | None, steps: int, *, as_user: bool) -> None:
    """It fits at each step. Its prefix moves only a few times, and it costs at most half of doing nothing.

    Between two moves come as many images as stay, or most of those that fill the room from low to high water.
    """
    messages = priced(screenshots(steps, as_user=as_user))
    budgets = find_budgets(Economy.BALANCED, window)
    policy = Policy(
        context_window=window,
        completion_reserve=window // 8,
        keep_images=keep,
        high_water=budgets.high_water,
        low_water=budgets.low_water,
        summary_max_tokens=budgets.summary_tokens,
        anchor_share=budgets.anchor_share,
    )
    requests = [stop for stop in range(2, len(messages) + 1) if messages[stop - 1].role != "assistant"]
    before: tuple[Message, ...] = ()
    cost, moves, original_before = 0.0, 0, 0
    original_cost, kept = 0.0, KeptStates()
    for stop in requests:
        planned, outcome = run(messages[:stop], policy, kept)
        sent = outcome.conversation
        assert sent.tokens <= planned.limit
        assert forwarded_images(outcome)[-1:] == list(messages[stop - 1].media)
        same = count_unchanged(before, sent.messages)
        moves += same < len(before)
        cached = sum(message.tokens for message in sent.messages[:same])
        cost += sent.tokens - 0.9 * cached
        original_cost += planned.original.tokens - 0.9 * original_before
        before, original_before = sent.messages, planned.original.tokens
    assert original_before > window
    assert cost < original_cost / 2
    stride = (policy.high_water - policy.low_water) * policy.limit_tokens() / IMAGE_TOKENS
    assert moves <= steps / min(keep or stride, stride * 0.7)


@pytest.mark.parametrize(("keep", "as_user"), [(1, False), (5, True)])
def test_as_many_images_stay_as_the_policy_says(keep: int, *, as_user: bool) -> None:
    """At least that many of the newest stay, and less than twice as many. That many are removed at a time."""
    messages = screenshots(20, as_user=as_user)
    policy = replace(POLICY, context_window=64_000, keep_images=keep)
    kept = KeptStates()
    numbers = [len(forwarded_images(run(messages[: 2 + 2 * step], policy, kept)[1])) for step in range(1, 21)]
    assert numbers[: 2 * keep - 1] == list(range(1, 2 * keep))
    assert set(numbers[keep:]) == set(range(keep, 2 * keep))


@pytest.mark.parametrize(("keep", "first"), [(3, 1), (5, 3), (2, 7)])
def test_images_of_the_task_statement_stay_and_count(keep: int, first: int) -> None:
    """Together with the newest they are fewer than twice as many as the policy says, if possible."""
    messages = [user("Like these.", *[IMAGE] * first)]
    for step in range(30):
        messages += [assistant(f"Seen {step}."), user(f"Look {step}.", IMAGE)]
    policy, kept = replace(POLICY, context_window=64_000, keep_images=keep), KeptStates()
    for stop in range(1, len(messages) + 1, 2):
        sent = run(messages[:stop], policy, kept)[1].conversation.messages
        shown = [any(not part.is_removed for part in message.media) for message in sent[2::2]]
        assert not any(part.is_removed for part in sent[0].media)
        assert all(shown[-keep:])
        assert first + sum(shown) <= max(2 * keep - 1, first + keep)


def test_where_the_policy_keeps_none_the_newest_step_keeps_its_images() -> None:
    """The model must still see those that it has just asked for."""
    for stop in range(4, 22, 2):
        outcome = run(screenshots(10)[:stop], replace(POLICY, context_window=64_000, keep_images=0))[1]
        assert len(forwarded_images(outcome)) == 1
        assert not outcome.conversation.messages[-1].media[0].is_removed


@pytest.mark.parametrize("strategy", OverflowStrategy)
def test_without_pruning_only_a_limit_on_their_number_removes_images(strategy: OverflowStrategy) -> None:
    messages, prunes = priced(screenshots(24), 400), strategy in {OverflowStrategy.AUTO_COMPACT, OverflowStrategy.PRUNE}
    for keep, removes in ((None, prunes), (4, True)):
        policy = replace(POLICY, context_window=10_000, overflow_strategy=strategy, keep_images=keep)
        planned = plan(conversation(*messages), policy, count=count)
        assert bool(planned.window.images.at) is removes


def test_first_and_last_words_of_the_user_keep_their_images() -> None:
    """They say what is wanted. Screenshots after them are removed."""
    asked = [user("This page.", IMAGE), *screenshots(4)[2:], user("Now like this.", IMAGE), *screenshots(22)[2:]]
    outcome = run(priced([system(), *asked], 400), replace(POLICY, context_window=10_000))[1]
    assert [decision.rule for decision in outcome.decisions] == ["images"]
    told = [one for one in outcome.conversation.messages if one.role == "user"]
    assert [one.text for one in told] == ["This page.", "Now like this."]
    assert not any(one.media[0].is_removed for one in told)


def test_kept_words_carry_no_images_of_the_removed_part() -> None:
    """They follow the summary, with a line for each image."""
    messages = screenshots(60, as_user=True)
    planned, outcome = run(messages, replace(POLICY, overflow_strategy=OverflowStrategy.SUMMARIZE))
    assert planned.window.cut is not None
    assert planned.window.cut.kept
    memo = outcome.conversation.messages[1]
    assert memo.media == ()
    assert sum(text.startswith("[trimtab: image") for text in memo.texts) == len(planned.window.cut.kept)


def test_images_give_way_before_a_summary_is_asked_for() -> None:
    """While that is enough, there is only this decision, and all texts stay."""
    messages, policy = priced(screenshots(25)), replace(POLICY, context_window=24_000)
    planned, outcome = run(messages, policy)
    assert [decision.rule for decision in outcome.decisions] == ["images"]
    assert planned.prefetch is None
    assert [message.texts for message in outcome.conversation.messages] == [message.texts for message in messages]
    assert outcome.conversation.tokens <= planned.limit * policy.high_water


@given(number=st.integers(1, 80), words=st.integers(0, 400), in_task=st.booleans())
def test_a_message_of_too_many_images_fits(number: int, words: int, *, in_task: bool) -> None:
    """Only then images of the newest message are removed, and only as many as necessary."""
    asked = user(fill("words", words), *[IMAGE] * number)
    messages = (system(), asked) if in_task else (system(), user("Begin."), assistant("Yes."), asked)
    planned, outcome = run(messages)
    images = forwarded_images(outcome)
    assert outcome.conversation.tokens <= planned.hard_limit
    # The head counts rounded up to a sixteenth of the limit, so just below the limit images may be removed.
    fits = planned.original.tokens <= planned.limit * 15 // 16
    assert len(images) == number if fits else len(images) >= min(number, 8)
    assert [part.is_removed for part in outcome.conversation.messages[-1].media] == sorted(
        (part.is_removed for part in outcome.conversation.messages[-1].media), reverse=True
    )
    assert check_transcript(write_all(messages), write_all(outcome.conversation.messages), last_may_shrink=True) == []
