"""The laws of images: which are removed, and when, over whole sessions of screenshots."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import (
    IMAGE,
    KeptStates,
    assistant,
    call,
    conversation,
    count,
    fill,
    measure,
    screenshots,
    shown,
    system,
    transcripts,
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
from trimtab.rules.window.cut_decision import Fold
from trimtab.rules.window.prune import ImageStop
from trimtab.rules.window.state import Window

POLICY = Policy(
    context_window=3200,
    completion_reserve=200,
    summary_max_tokens=200,
    prices=Prices(),
    high_water=0.8,
    low_water=0.4,
    anchor_share=0.06,
)
SHAPES = pytest.mark.parametrize("as_user", [False, True])
IMAGE_TOKENS = 1105
"""The cost of a screenshot of 1280 by 800 for gpt-4o."""


def run(messages: Sequence[Message], policy: Policy = POLICY, kept: KeptStates | None = None) -> tuple[Plan, Outcome]:
    """The decisions about a transcript, and the conversation that is forwarded. `kept` only saves time."""
    planned = plan(conversation(*messages), policy, count=count, states=kept)
    summary = Summary("What was done so far.", by_model=True) if planned.request else None
    return planned, apply(planned, policy, count=count, summary=summary, states=kept)


def states(messages: Sequence[Message], policy: Policy, limit: int) -> list[Window]:
    """The window after each message."""
    folded = Fold(measure(messages, policy, limit=limit), policy)
    found = []
    for message in messages:
        folded.add(message)
        found.append(folded.finish())
    return found


def forwarded_images(outcome: Outcome) -> list[Media]:
    """The images that are forwarded, oldest first."""
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
    """The number of messages with which both begin."""
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    return same


@given(messages=transcripts(), keep=st.sampled_from([None, 0, 1, 3]), limit=st.sampled_from([900, 2400]))
def test_what_was_removed_stays_removed(messages: tuple[Message, ...], keep: int | None, limit: int) -> None:
    """The place before which images are removed only moves forward, and never into the newest step."""
    policy = replace(POLICY, keep_images=keep)
    for before, after in pairwise(states((system(), user("Go."), *messages), policy, limit)):
        assert after.images.at >= max(before.images.at, after.prune_stop)
        if after.images == before.images:
            continue
        assert after.images.spared < after.images.at


@pytest.mark.parametrize(
    ("window", "keep", "as_user", "steps"),
    [
        (32_000, None, False, 80),
        (32_000, 3, True, 80),
        (32_000, 10, False, 80),
        (128_000, None, True, 150),
        (128_000, 3, False, 150),
        (128_000, 10, True, 150),
    ],
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


@SHAPES
@pytest.mark.parametrize("keep", [1, 2, 5])
def test_as_many_images_stay_as_the_policy_says(keep: int, *, as_user: bool) -> None:
    """At least that many of the newest stay, and less than twice as many. That many are removed at a time."""
    messages = screenshots(40, as_user=as_user)
    policy = replace(POLICY, context_window=64_000, keep_images=keep)
    kept = KeptStates()
    numbers = [len(forwarded_images(run(messages[: 2 + 2 * step], policy, kept)[1])) for step in range(1, 41)]
    assert numbers[: 2 * keep - 1] == list(range(1, 2 * keep))
    assert set(numbers[keep:]) == set(range(keep, 2 * keep))


@pytest.mark.parametrize(("keep", "first"), [(2, 1), (3, 1), (10, 1), (5, 3), (2, 2), (2, 7), (1, 1)])
def test_images_of_the_first_message_count(keep: int, first: int) -> None:
    """They stay, and so do the newest. Together they are fewer than twice as many as the policy says, if possible."""
    messages = [user("Like these.", *[IMAGE] * first)]
    for step in range(30):
        messages += [assistant(f"Seen {step}."), user(f"Look {step}.", IMAGE)]
    policy = replace(POLICY, context_window=64_000, keep_images=keep)
    before: tuple[Message, ...] = ()
    breaks, kept = 0, KeptStates()
    for stop in range(1, len(messages) + 1, 2):
        sent = run(messages[:stop], policy, kept)[1].conversation.messages
        shown = [any(not part.is_removed for part in message.media) for message in sent[2::2]]
        assert not any(part.is_removed for part in sent[0].media)
        assert all(shown[-keep:])
        assert first + sum(shown) <= max(2 * keep - 1, first + keep)
        breaks += count_unchanged(before, sent) < len(before)
        before = sent
    assert breaks <= 30 // max(keep - first, 1)


def test_no_image_stays_but_those_of_the_newest_step() -> None:
    """The policy keeps zero images. The model must still see those that it has just asked for."""
    messages = screenshots(10)
    policy = replace(POLICY, context_window=64_000, keep_images=0)
    outcome = run(messages, policy)[1]
    assert [bool(forwarded_images(Outcome(conversation(one)))) for one in outcome.conversation.messages[3::2]] == [
        *[False] * 9,
        True,
    ]


def test_images_give_way_before_a_summary_is_asked_for() -> None:
    """While that is enough, there is only this decision, and all texts stay."""
    messages, policy = priced(screenshots(25)), replace(POLICY, context_window=24_000)
    planned, outcome = run(messages, policy)
    assert [decision.rule for decision in outcome.decisions] == ["images"]
    assert planned.prefetch is None
    assert [message.texts for message in outcome.conversation.messages] == [message.texts for message in messages]
    assert outcome.conversation.tokens <= planned.limit * policy.high_water


def test_where_images_are_not_enough_there_is_a_summary() -> None:
    """In the end, the texts of a long session fill the room."""
    messages, policy = priced(screenshots(150)), replace(POLICY, context_window=10_000)
    kept = KeptStates()
    outcomes = [run(messages[: 2 + stop], policy, kept)[1] for stop in range(2, 300, 20)]
    rules = {decision.rule for outcome in outcomes for decision in outcome.decisions}
    assert {"images", "summarise"} <= rules


@pytest.mark.parametrize("strategy", [OverflowStrategy.SUMMARIZE, OverflowStrategy.ERROR])
def test_without_pruning_no_image_is_pruned(strategy: OverflowStrategy) -> None:
    """Only a limit on their number removes images then."""
    messages, policy = screenshots(24), replace(POLICY, overflow_strategy=strategy)
    limit = policy.limit_tokens()
    assert {state.images for state in states(messages, policy, limit)} == {ImageStop()}
    assert states(messages, replace(policy, keep_images=4), limit)[-1].images.at > 0


def test_first_and_last_words_of_the_user_keep_their_images() -> None:
    """They say what is wanted. Screenshots after them are removed, until newer messages of the user come."""
    asked = [user("This page.", IMAGE), *screenshots(4)[2:], user("Now like this.", IMAGE), *screenshots(22)[2:]]
    policy = replace(POLICY, context_window=10_000)
    outcome = run(priced([system(), *asked], 400), policy)[1]
    assert [decision.rule for decision in outcome.decisions] == ["images"]
    kept = [message.text for message in outcome.conversation.messages if message.role == "user" and message.media]
    with_images = [
        message.text
        for message in outcome.conversation.messages
        if message.role == "user" and any(not part.is_removed for part in message.media)
    ]
    assert kept == with_images == ["This page.", "Now like this."]
    more = [assistant("Done."), user("Thanks."), *screenshots(15)[2:]]
    newer = run(priced([system(), *asked, *more], 400), policy)[1]
    assert {decision.rule for decision in newer.decisions} == {"images"}
    told = [message for message in newer.conversation.messages if "Now like this." in message.text]
    assert not any(not part.is_removed for message in told for part in message.media)


def test_kept_words_carry_no_images_of_the_removed_part() -> None:
    """They follow the summary, with a line for each image."""
    messages = screenshots(60, as_user=True)
    planned, outcome = run(messages, replace(POLICY, overflow_strategy=OverflowStrategy.SUMMARIZE))
    assert planned.window.cut.kept
    memo = outcome.conversation.messages[1]
    assert memo.media == ()
    assert sum(text.startswith("[trimtab: image") for text in memo.texts) == len(planned.window.cut.kept)


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


def test_results_of_too_many_images_fit_and_stay_so() -> None:
    """Results that were shortened for the model's answer are forwarded in the same way, at the reserved cost."""
    calls = [call(f"c{number}") for number in range(8)]
    results = [shown(f"c{number}", *[IMAGE] * 6, text="here") for number in range(8)]
    messages = (system(), user("Look."), assistant("All.", *calls), *results)
    policy = replace(POLICY, context_window=2400, overflow_strategy=OverflowStrategy.SUMMARIZE)
    planned, outcome = run(messages, policy)
    assert outcome.conversation.tokens <= planned.hard_limit
    assert forwarded_images(outcome)[-1:] == list(results[-1].media[-1:])
    later_plan, later = run((*messages, assistant("I see."), user("Go on.")), policy)
    if later_plan.window.cut is None and later_plan.window.images == planned.window.images:
        assert later.conversation.messages[: len(messages)] == outcome.conversation.messages
    assert later.conversation.tokens <= later_plan.reserved_tokens
