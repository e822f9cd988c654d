"""The laws of pins and of long messages, over whole transcripts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from support.append_law import check_append_law, run
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
    transcripts,
    user,
    valid_transcripts,
)
from support.policies import POLICY

from trimtab.rules.conversation import Message, Role
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.policy import Budget, OnExceeded, OverflowStrategy, Policy, PreserveSystem, Tidying
from trimtab.rules.results.work import Work
from trimtab.rules.text.markers import START

WIDE = replace(POLICY, context_window=1_000_000, dedupe=True, tidying=Tidying(), result_budget=Budget(100))
LIMIT = 64


@contextmanager
def pinning(long_tokens: int = 40) -> Iterator[None]:
    """Within the block, shorter tool output than usual gets a pin."""
    with mock.patch("trimtab.rules.pipeline.appended.LONG_TOKENS", long_tokens):
        yield


def policies() -> st.SearchStrategy[Policy]:
    """Policies with pins or a limit of messages, or both, for small windows."""
    return st.builds(
        replace,
        st.just(POLICY),
        context_window=st.sampled_from([600, 1600, 4000]),
        overflow_strategy=st.sampled_from(OverflowStrategy),
        on_exceeded=st.sampled_from([OnExceeded.FORWARD, OnExceeded.TRUNCATE]),
        summary_min_steps=st.sampled_from([1, 6]),
        dedupe=st.booleans(),
        pin_instruction=st.booleans(),
        max_message_tokens=st.sampled_from([None, LIMIT]),
        preserve_system=st.sampled_from(PreserveSystem),
    )


def unpin(message: Message) -> tuple[str, ...]:
    """The texts of a message without a pin at the end."""
    last = message.texts[-1:] and message.texts[-1].rpartition(f"\n{START}reminder of ")
    return (*message.texts[:-1], last[0]) if last and last[1] else message.texts


@given(messages=transcripts(16), policy=policies())
def test_a_longer_transcript_forwards_the_same_pins(messages: tuple[Message, ...], policy: Policy) -> None:
    """What was forwarded is forwarded again, with its pin or shortened, unless the cut moves."""
    with pinning():
        check_append_law(messages, policy)


def test_a_long_session_forwards_the_same_pins() -> None:
    """Over many cuts."""
    with pinning():
        for strategy in (OverflowStrategy.AUTO_COMPACT, OverflowStrategy.PRUNE):
            policy = replace(POLICY, pin_instruction=True, max_message_tokens=LIMIT, overflow_strategy=strategy)
            assert check_append_law(session(80, call_tokens=90, result_tokens=200), policy, every=5) >= 3


def test_steps_larger_than_the_window_forward_the_same_pins() -> None:
    """A result that is shortened to what is left keeps its pin if there is room for it."""
    messages: list[Message] = [system(), user("Mend the build.")]
    for number in range(8):
        calls = [call(f"{number}-{rank}") for rank in range(1 + number % 3)]
        messages += [assistant("look", *calls), *(result(one.id, fill(one.id, 1500)) for one in calls)]
    policy = replace(
        POLICY, context_window=1200, result_budget=Budget(5000), pin_instruction=True, on_exceeded=OnExceeded.TRUNCATE
    )
    with pinning():
        check_append_law(tuple(messages), policy)
        planned, outcome = run(conversation(*messages[:4]), policy)
        assert {decision.rule for decision in outcome.decisions} == {"exceeded", "pin"}
        assert outcome.conversation.tokens <= planned.limit
        assert unpin(outcome.conversation.messages[-1]) != outcome.conversation.messages[-1].texts


@given(messages=transcripts(), policy=policies())
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


@given(messages=transcripts(), policy=policies())
def test_both_are_idempotent(messages: tuple[Message, ...], policy: Policy) -> None:
    """On their own outcome there is nothing left to do."""
    policy = replace(policy, context_window=1_000_000, result_budget=Budget(1_000_000), dedupe=False)
    with pinning():
        once = run(conversation(*messages), policy)[1].conversation
        assert not {decision.rule for decision in run(once, policy)[1].decisions} & {"pin", "shorten", "pairing"}


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


@given(messages=transcripts(), stops=st.lists(st.integers(1, 60), max_size=5), policy=policies())
def test_remembered_states_change_nothing(messages: tuple[Message, ...], stops: list[int], policy: Policy) -> None:
    """The outcome is the same if the beginning of the transcript was seen before."""
    states, work = KeptStates(), Work(count)
    with pinning():
        for stop in (*sorted(stops), len(messages)):
            part = conversation(*messages[:stop])
            try:
                planned, outcome = run(part, policy)
            except LimitExceededError:
                continue
            again = plan(part, policy, count=count, work=work, states=states)
            assert again == planned
            if planned.request is None:
                assert apply(again, policy, count=count, work=work, states=states) == outcome


def test_the_fold_sees_the_pins() -> None:
    """Sessions that fit without pins are cut because of them, as if each pinned result were that much longer."""
    messages = session(12, result_tokens=160)
    plain = replace(POLICY, context_window=3150, overflow_strategy=OverflowStrategy.PRUNE)
    with pinning(150):
        pinned = run(conversation(*messages), replace(plain, pin_instruction=True))[0]
        longer = [replace(one, tokens=one.tokens + pinned.pins[0].tokens * (one.role is Role.TOOL)) for one in messages]
        assert run(conversation(*longer), plain)[0].window == pinned.window
    assert run(conversation(*messages), plain)[0].window.prune_stop < pinned.window.prune_stop
