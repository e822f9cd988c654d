"""The laws of replay for any transcript: what may change a decision, and what may not."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.builders import (
    FREE,
    KeptStates,
    assistant,
    fold,
    measure,
    session,
    system,
    transcripts,
    user,
)
from support.open_step import find_open_step
from support.policies import with_any_waters

from trimtab.rules.conversation import Message
from trimtab.rules.policy import OnExceeded, OverflowStrategy, Policy, Prices
from trimtab.rules.window.cut_candidates import SUMMARY_FRAME_TOKENS
from trimtab.rules.window.cut_decision import Fold
from trimtab.rules.window.room import HEAD_STEPS, MIN_ROOM_SHARE, Room
from trimtab.rules.window.state import Window

MANY = settings(max_examples=max(40, settings.default.max_examples))
"""All other laws depend on these: at least forty cases in every run, more in the thorough one."""
LIMIT = 2400
POLICY = Policy(
    protect_turns=1,
    keep_user_tokens=200,
    summary_max_tokens=200,
    summary_min_steps=3,
    high_water=0.8,
    low_water=0.4,
    anchor_share=0.06,
)
PRICES = st.sampled_from([FREE, Prices(), Prices(cached_input=0.5), Prices(1.0, 1.0, 0.0)])
HEAD = (system("You are careful."), user("Mend the build."))


def policies() -> st.SearchStrategy[Policy]:
    """Policies of every strategy, patient and impatient, with the waters of every economy and with arbitrary ones."""
    return with_any_waters(
        st.builds(
            replace,
            st.just(POLICY),
            overflow_strategy=st.sampled_from(OverflowStrategy),
            prices=PRICES,
            keep_images=st.sampled_from([None, 0, 2]),
            protect_turns=st.integers(0, 2),
            summary_min_steps=st.sampled_from([1, 4]),
            on_exceeded=st.sampled_from([OnExceeded.TRUNCATE, OnExceeded.ERROR]),
        )
    )


def states(messages: Sequence[Message], policy: Policy, room: Room) -> list[Window]:
    """The state after each message of one fold, as for a request that ends there; and the state before the first."""
    folded = Fold(room, policy)
    found = [folded.finish()]
    for message in messages:
        folded.add(message)
        found.append(folded.finish())
    return found


@MANY
@given(messages=transcripts(), policy=policies(), fixed_tokens=st.integers(0, 700))
def test_no_message_changes_what_was_decided_before_it(
    messages: tuple[Message, ...], policy: Policy, fixed_tokens: int
) -> None:
    """Each state on the way is the state of a transcript that ends there."""
    room = measure(messages, policy, limit=LIMIT, fixed_tokens=fixed_tokens)
    for stop, state in enumerate(states(messages, policy, room)):
        assert state == fold(messages[:stop], policy, limit=LIMIT, fixed_tokens=fixed_tokens)


@MANY
@given(messages=transcripts(), policy=policies())
def test_cuts_and_pruning_only_go_on(messages: tuple[Message, ...], policy: Policy) -> None:
    """Cuts are appended. Only the last one may be replaced, in the same place, while its step is open.

    Removed images stay removed, and the newest one is never among them.
    """
    messages = (*HEAD, *messages)
    for before, after in pairwise(states(messages, policy, measure(messages, policy, limit=LIMIT))):
        assert after.prune_stop >= before.prune_stop
        assert after.images.at >= max(before.images.at, after.prune_stop)
        assert after.images == before.images or after.images.spared < after.images.at
        if before.cut and after.cuts[: len(before.cuts)] != before.cuts:
            assert after.cuts[:-1] == before.cuts[:-1]
            assert after.cuts[-1].at == before.cut.at
        assert all(left.at < right.at for left, right in pairwise(after.cuts))


@MANY
@given(messages=transcripts(), policy=policies())
def test_the_window_before_a_cut_is_the_state_before_it(messages: tuple[Message, ...], policy: Policy) -> None:
    """A cut can be put off exactly: without it, the window is the one that was decided one message earlier.

    Only messages that the model has not answered may be shortened differently.
    """
    messages = (*HEAD, *messages)
    for before, after in pairwise(states(messages, policy, measure(messages, policy, limit=LIMIT))):
        if len(after.cuts) > len(before.cuts):
            images = after.cuts[-1].images  # a limit on their number applies at once
            expected = structs.replace(before, next_cut=None, prefetch_tokens=0, caps=after.caps, images=images)
            # The message that asks for the cut is the one that may reach high water, whether or not the cut is made.
            assert after.earlier == structs.replace(expected, is_high=after.is_high, removed_from=after.removed_from)


@MANY
@given(messages=transcripts(), policy=policies(), limit=st.sampled_from([600, 1200, 2400]))
def test_what_was_shortened_when_the_model_answered_stays_so(
    messages: tuple[Message, ...], policy: Policy, limit: int
) -> None:
    """Later messages append caps. No cap before the model's last answer changes."""
    messages = (*HEAD, *messages)
    found = states(messages, policy, measure(messages, policy, limit=limit))
    answered = 0  # the messages before the model's last answer
    for index, (message, before, after) in enumerate(zip(messages, found, found[1:], strict=False)):
        if message.role == "assistant":
            answered = index
            assert after.caps == before.caps
        settled = [cap for cap in before.caps if cap.at < answered]
        assert list(after.caps[: len(settled)]) == settled
        assert len({cap.at for cap in after.caps}) == len(after.caps)


@MANY
@given(messages=transcripts(), policy=policies(), limit=st.sampled_from([1200, 2400]))
def test_the_fold_is_never_over_its_room(messages: tuple[Message, ...], policy: Policy, limit: int) -> None:
    """The forwarded messages fit at every message, unless the parts that can never be cut are too large.

    The running sum of what is forwarded is always the size of the window.
    """
    if policy.overflow_strategy is OverflowStrategy.ERROR:
        return
    messages = (*HEAD, *messages)
    folded = Fold(room := measure(messages, policy, limit=limit), policy)
    for stop, message in enumerate(messages, start=1):
        folded.add(message)
        assert folded._forwarded == folded._cuts.size(folded.window)
        caps = folded.finish().caps[len(folded.window.caps) :]
        shortened = sum(messages[cap.at].tokens - cap.tokens for cap in caps)
        assert folded._forwarded - shortened <= max(room.tokens, _least(messages[:stop]))
        if shortened:
            assert folded._forwarded > room.tokens


def _least(messages: Sequence[Message]) -> int:
    """The cost of the open step and the last user message, with the frame of a digest."""
    open_step = max(find_open_step(messages), len(HEAD))
    users = [index for index, one in enumerate(messages) if one.role == "user" and index >= len(HEAD)][-1:]
    last = [messages[index] for index in users if index < open_step]
    return SUMMARY_FRAME_TOKENS + sum(one.tokens for one in (*messages[open_step:], *last))


@MANY
@given(messages=transcripts(), policy=policies(), extra=st.integers(0, LIMIT // HEAD_STEPS - 20))
def test_a_volatile_head_moves_nothing(messages: tuple[Message, ...], policy: Policy, extra: int) -> None:
    """A small tool or a longer system prompt changes no decision while the rounded head is the same."""
    body = (user("Mend the build."), *messages)
    plain = fold((system("9:00"), *body), policy, limit=LIMIT, fixed_tokens=1)
    assert fold((system("9:00"), *body), policy, limit=LIMIT, fixed_tokens=1 + extra) == plain
    assert fold((system("9:00" + "!" * 4 * extra), *body), policy, limit=LIMIT, fixed_tokens=1) == plain


@MANY
@given(
    sizes=st.tuples(st.integers(2, 20), st.integers(5, 60)),
    head=st.integers(0, LIMIT),
    strategy=st.sampled_from(OverflowStrategy),
)
def test_no_head_makes_every_step_a_move(sizes: tuple[int, int], head: int, strategy: OverflowStrategy) -> None:
    """If the head leaves a quarter of the limit, a move frees at least a tenth of that. So moves are rare.

    If it leaves less, nothing moves before the room is full.
    """
    messages = session(60, call_tokens=sizes[0], result_tokens=sizes[1])
    policy = replace(POLICY, overflow_strategy=strategy, prices=FREE)
    room = Room.measure(messages, head, LIMIT)
    found = states(messages, policy, room)
    moves = sum((left.cuts, left.prune_stop) != (right.cuts, right.prune_stop) for left, right in pairwise(found))
    total = sum(message.tokens for message in messages)
    if room.tokens >= LIMIT * MIN_ROOM_SHARE:
        assert moves <= total / max(room.tokens * 0.1, LIMIT / HEAD_STEPS / 4)
    else:
        assert not moves or total > room.tokens


def test_a_kept_state_folds_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two new messages cost two steps of the fold, none cost none, and another head costs all of them."""
    added = _count_adds(monkeypatch)
    known, messages = KeptStates(), session(50)
    costs = []
    for stop, fixed_tokens in ((60, 0), (62, 0), (62, 10), (102, 0), (102, LIMIT // 2)):
        before = len(added)
        fold(messages[:stop], POLICY, limit=LIMIT, fixed_tokens=fixed_tokens, states=known)
        costs.append(len(added) - before)
    assert costs == [60, 2, 0, 40, 102]


def _count_adds(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    added: list[Message] = []
    add: Callable[..., Any] = Fold.add
    monkeypatch.setattr(
        Fold, "add", lambda self, message, *memory: (added.append(message), add(self, message, *memory))[1]
    )
    return added


def test_a_cut_waits_until_it_pays() -> None:
    """If it is free, it is made at high water. A higher price makes it later, until the room is full."""
    messages = (*HEAD, *(assistant(f"{number} " + "word " * 10) for number in range(200)))
    room = Room.measure(messages, 0, LIMIT)
    sizes = [sum(message.tokens for message in messages[2:stop]) for stop in range(len(messages) + 1)]
    shares = []
    for prices in (FREE, Prices(1, 0.2, 0), Prices(1, 0.1, 0), Prices(1, 0.1, 0.5), Prices(1, 0.01, 4)):
        first = _first_move(states(messages, replace(POLICY, prices=prices), room))
        shares.append(sizes[first] / room.tokens)
    assert shares == sorted(shares)
    assert len(set(shares)) >= 4
    assert POLICY.high_water <= shares[0] < POLICY.high_water + 0.02
    assert 1.0 < shares[-1] < 1.02


def _first_move(found: Sequence[Window]) -> int:
    moved = (index for index, state in enumerate(found) if state.cuts or state.prune_stop)
    return next(moved, len(found))
