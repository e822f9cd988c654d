"""The laws of stories, over whole transcripts: valid ones and broken ones, cut and uncut, in every role of a summary.

1. An unchanged message has no change. 2. The tokens of the changes add up to what was saved, in the model's own tokens
too. 3. Each forwarded text is told. 4. Each decision has a sentence. 5. Deterministic, and total. 6. No sentence has
a word of the conversation.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    conversation,
    count,
    transcripts,
    valid_transcripts,
)
from support.policies import any_policies

from trimtab.rules.conversation import Conversation, Message, Outcome, Shape
from trimtab.rules.pipeline.changes import Fate
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.pipeline.story import Story, tell_story
from trimtab.rules.policy import Policy
from trimtab.rules.summary.request import Summary

MODELS = Summary("The build was mended in part; the tests are still to be run.", by_model=True)
SHAPES = (
    Shape(),
    Shape(alternates=False),
    Shape(has_system_messages=False),
    Shape(joins_systems=True),
    Shape(alternates=False, joins_systems=True),
)


def tell(given_conversation: Conversation, policy: Policy, summary: Summary | None) -> tuple[Plan, Outcome, Story]:
    """The plan, the outcome and the story; of what was left if the policy refuses the request."""
    planned = plan(given_conversation, policy, count=count)
    try:
        outcome = apply(planned, policy, count=count, summary=summary)
    except LimitExceededError as error:
        outcome = Outcome(error.conversation or given_conversation, error.decisions)
    return planned, outcome, tell_story(planned, outcome)


def _shape(messages: tuple[Message, ...], shape: Shape) -> Conversation:
    return replace(conversation(*messages, fixed_tokens=20), shape=shape)


drawn = given(
    st.one_of(transcripts(), valid_transcripts(60)),
    any_policies(),
    st.sampled_from([None, MODELS]),
    st.sampled_from(SHAPES),
)


@drawn
def test_a_message_has_a_change_exactly_if_it_is_forwarded_differently(
    messages: tuple[Message, ...], policy: Policy, summary: Summary | None, shape: Shape
) -> None:
    _, outcome, story = tell(_shape(messages, shape), policy, summary)
    changed = Counter(change.at for change in story.changes if change.fate is not Fate.ADDED)
    assert set(changed.values()) <= {1}
    forwarded = {origin.start: one for one, origin in _place(outcome.conversation) if origin is not None}
    for at, message in enumerate(messages):
        stays = at in forwarded and forwarded[at].texts == message.texts and forwarded[at].media == message.media
        moved = any(change.at == at and change.fate is Fate.MOVED for change in story.changes)
        assert (at not in changed) >= (stays and not moved), at
        if at in changed and not moved:
            assert not stays


@given(
    st.one_of(transcripts(), valid_transcripts(60)),
    any_policies(),
    st.sampled_from([None, MODELS]),
    st.sampled_from(SHAPES),
    st.sampled_from([1.0, 0.7, 2.9]),
)
def test_the_tokens_of_the_changes_add_up_in_the_models_own_tokens(
    messages: tuple[Message, ...], policy: Policy, summary: Summary | None, shape: Shape, ratio: float
) -> None:
    """To the token, and to what the first sentence says. Nothing else in the changes depends on the ratio."""
    planned, outcome, plain = tell(_shape(messages, shape), policy, summary)
    story = tell_story(planned, outcome, ratio=ratio)
    saved = sum(change.tokens_before - change.tokens_after for change in story.changes)
    assert saved == round(planned.original.tokens * ratio) - round(outcome.conversation.tokens * ratio)
    if outcome.decisions:
        assert saved == story.sentences[0].saved_tokens
    for own, change in zip(plain.changes, story.changes, strict=True):
        assert abs(change.tokens_before - own.tokens_before * ratio) <= 1
        assert abs(change.tokens_after - own.tokens_after * ratio) <= 1
        assert min(change.tokens_before, change.tokens_after) >= 0
        assert replace(change, tokens_before=own.tokens_before, tokens_after=own.tokens_after) == own


@drawn
def test_each_forwarded_text_is_an_unchanged_one_or_stands_in_a_change(
    messages: tuple[Message, ...], policy: Policy, summary: Summary | None, shape: Shape
) -> None:
    _, outcome, story = tell(_shape(messages, shape), policy, summary)
    changed = {change.at for change in story.changes if change.fate is not Fate.ADDED}
    told = Counter(text for at, message in enumerate(messages) if at not in changed for text in message.texts)
    said = "\n".join(change.after for change in story.changes)
    for message, _ in _place(outcome.conversation):
        for text in message.texts:
            if told[text]:
                told[text] -= 1
            else:
                assert text in said
    assert not +told, "an unchanged message was not forwarded"


@drawn
def test_each_decision_has_a_sentence_and_each_change_a_decision(
    messages: tuple[Message, ...], policy: Policy, summary: Summary | None, shape: Shape
) -> None:
    _, outcome, story = tell(_shape(messages, shape), policy, summary)
    decided = {decision.rule for decision in outcome.decisions}
    assert {sentence.rule for sentence in story.sentences[1:]} == decided
    assert story.sentences[0].rule == ""
    for decision in outcome.decisions:
        told = [one.saved_tokens for one in story.sentences if one.rule == decision.rule]
        assert decision.saved_tokens in told
    for change in story.changes:
        assert change.rules
        assert set(change.rules) <= decided
    everywhere = {change.at for change in story.changes} | set(range(-1, len(messages)))
    assert all(
        set(one.messages) <= everywhere and list(one.messages) == sorted(one.messages) for one in story.sentences
    )


@drawn
def test_a_rule_is_named_at_as_many_messages_as_its_decision_counts(
    messages: tuple[Message, ...], policy: Policy, summary: Summary | None, shape: Shape
) -> None:
    _, outcome, story = tell(_shape(messages, shape), policy, summary)
    counted = {"prune", "dedupe", "pin", "truncate", "shorten", "exceeded"}
    named = Counter(rule for change in story.changes for rule in change.rules)
    for decision in outcome.decisions:
        if decision.rule in counted:
            assert named[decision.rule] == decision.messages, decision


@given(transcripts(), any_policies())
def test_no_sentence_has_a_word_of_the_conversation(messages: tuple[Message, ...], policy: Policy) -> None:
    planted = [replace(message, texts=tuple(f"xyzzy {text}" for text in message.texts)) for message in messages]
    _, _, story = tell(_shape(tuple(planted), Shape()), policy, None)
    assert all("xyzzy" not in sentence.text and "a/b.py" not in sentence.text for sentence in story.sentences)


def _place(forwarded: Conversation) -> list[tuple[Message, Any]]:
    return list(zip(forwarded.messages, forwarded.origins, strict=True))
