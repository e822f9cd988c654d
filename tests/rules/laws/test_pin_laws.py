"""The laws of pins and of long messages, over whole transcripts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from hypothesis import given
from support.append_law import check_append_law, run
from support.builders import (
    conversation,
    count,
    session,
    transcripts,
    valid_transcripts,
)
from support.policies import POLICY, any_policies

from trimtab.rules.conversation import Message, Role
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.policy import Budget, OverflowStrategy, Policy, Tidying
from trimtab.rules.text.markers import START

WIDE = replace(POLICY, context_window=1_000_000, dedupe=True, tidying=Tidying(), result_budget=Budget(100))
LIMIT = 64


@contextmanager
def pinning(long_tokens: int = 40) -> Iterator[None]:
    """Within the block, shorter tool output than usual gets a pin."""
    with mock.patch("trimtab.rules.pipeline.appended.LONG_TOKENS", long_tokens):
        yield


def unpin(message: Message) -> tuple[str, ...]:
    last = message.texts[-1:] and message.texts[-1].rpartition(f"\n{START}reminder of ")
    return (*message.texts[:-1], last[0]) if last and last[1] else message.texts


@given(messages=transcripts(16), policy=any_policies())
def test_a_longer_transcript_forwards_the_same_pins(messages: tuple[Message, ...], policy: Policy) -> None:
    """What was forwarded is forwarded again, with its pin or shortened, unless the cut moves."""
    with pinning():
        check_append_law(messages, policy)


@given(messages=transcripts(), policy=any_policies())
def test_tokens_grow_by_pins_only(messages: tuple[Message, ...], policy: Policy) -> None:
    """The decisions tell how much. The plan knows the size of what is forwarded."""
    before = conversation(*messages)
    with pinning():
        try:
            planned, outcome = run(before, policy)
        except LimitExceededError:
            return
    added = {decision.rule for decision in outcome.decisions if decision.saved_tokens < 0}
    saved = sum(decision.saved_tokens for decision in outcome.decisions)
    assert added <= {"pin", "pairing"}
    assert saved == before.tokens - outcome.conversation.tokens
    assert (outcome.conversation is before) == (not outcome.decisions)
    assert outcome.conversation.tokens <= planned.reserved_tokens


@given(messages=transcripts())
def test_pins_change_nothing_else(messages: tuple[Message, ...]) -> None:
    """Without their pins, results are tidied, truncated and deduplicated as if there were none."""
    with pinning():
        pinned = run(conversation(*messages), replace(WIDE, pin_instruction=True))[1]
    plain = run(conversation(*messages), WIDE)[1]
    sent = pinned.conversation.messages
    assert [unpin(message) for message in sent] == [message.texts for message in plain.conversation.messages]
    decisions = [decision for decision in pinned.decisions if decision.rule != "pin"]
    assert decisions == list(plain.decisions)
    pins = [message for message in sent if unpin(message) != message.texts]
    assert all(message.role is Role.TOOL for message in pins)
    told = sum(decision.messages for decision in pinned.decisions if decision.rule == "pin")
    assert told == len(pins)


@given(messages=valid_transcripts())
def test_long_messages_keep_the_rest(messages: tuple[Message, ...]) -> None:
    """Only texts of the assistant, and of the system after the beginning, change. They fit the limit then."""
    policy = replace(WIDE, tidying=None, dedupe=False, max_message_tokens=LIMIT, result_budget=Budget(1_000_000))
    before = conversation(*messages)
    sent = run(before, policy)[1].conversation
    started = False
    for old, new in zip(before.messages, sent.messages, strict=True):
        started = started or old.role is not Role.SYSTEM
        if new is old:
            is_free = old.role is Role.ASSISTANT or (old.role is Role.SYSTEM and started)
            assert not is_free or sum(map(count, old.texts)) <= LIMIT * 1.1
            continue
        assert started
        assert old.role in {Role.ASSISTANT, Role.SYSTEM}
        assert sum(map(count, new.texts)) <= LIMIT
        assert replace(new, texts=old.texts, tokens=old.tokens, edited=False, saved_tokens=0) == old


def test_the_fold_sees_the_pins() -> None:
    """Sessions that fit without pins are cut because of them, as if each pinned result were that much longer."""
    messages = session(12, result_tokens=160)
    plain = replace(POLICY, context_window=3150, overflow_strategy=OverflowStrategy.PRUNE)
    with pinning(150):
        pinned = run(conversation(*messages), replace(plain, pin_instruction=True))[0]
        longer = [replace(one, tokens=one.tokens + pinned.pins[0].tokens * (one.role is Role.TOOL)) for one in messages]
        assert run(conversation(*longer), plain)[0].window == pinned.window
    assert run(conversation(*messages), plain)[0].window.prune_stop < pinned.window.prune_stop
