"""The replayed cut: its laws, what moves it, and what does not."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import (
    FREE,
    assistant,
    call,
    fill,
    measure,
    result,
    session,
    system,
    transcripts,
    user,
)
from support.builders import fold as fold_by

from trimtab.rules.conversation import Message
from trimtab.rules.policy import PREFETCH_GAP, OnExceeded, OverflowStrategy, Policy, Prices
from trimtab.rules.window.cut_decision import Fold
from trimtab.rules.window.kept import REMOVALS
from trimtab.rules.window.room import HEAD_STEPS, LEAST_ROOM_SHARE, Room
from trimtab.rules.window.state import ColdCut, Cut, CutKind, Window

LIMIT = 3200
POLICY = Policy(
    protect_turns=0,
    keep_user_tokens=200,
    summary_max_tokens=200,
    summary_min_steps=3,
    prices=FREE,
    high_water=0.8,
    low_water=0.4,
    anchor_share=0.06,
)
WHOLE = replace(POLICY, on_exceeded=OnExceeded.ERROR)
"""Nothing is shortened: messages that do not fit are left as they are."""
DEAR = replace(POLICY, prices=Prices(1, 0.001, 4))
"""Reading from the cache costs almost nothing, so no cut pays before the room is full."""
ROOM = LIMIT - LIMIT // HEAD_STEPS
"""The room that a short head leaves."""
AHEAD = int(ROOM * (1 - PREFETCH_GAP))
"""From this size on, the next cut may be fixed."""


def fold(messages: Sequence[Message], policy: Policy = POLICY, *, fixed_tokens: int = 0, limit: int = LIMIT) -> Window:
    return fold_by(messages, policy, fixed_tokens=fixed_tokens, limit=limit)


def fold_all(messages: Sequence[Message], policy: Policy = POLICY, *, fixed_tokens: int = 0) -> list[Window]:
    """The state after each message, and the one before the first.

    A fold is continued while the room stays the same, as in a growing session: to fold each beginning anew takes the
    square of the time. That both give the same states is a law in tests/rules/pipeline/test_transcript_state.py.
    """
    states, folded = [], None
    for stop in range(len(messages) + 1):
        room = measure(messages[:stop], policy, limit=LIMIT, fixed_tokens=fixed_tokens)
        if folded is None or folded.room != room:
            folded = Fold(room, policy)
        states.append(folded.extend(messages[:stop]).finish())
    return states


def chat(turns: int, tokens: int) -> tuple[Message, ...]:
    pairs = ((user(fill(f"u{turn}", tokens)), assistant(fill(f"a{turn}", tokens))) for turn in range(turns))
    return tuple(message for pair in pairs for message in pair)


def behind_head(messages: Sequence[Message], window: Window, stop: int) -> int:
    """The forwarded tokens of the first `stop` messages after the task, while no result is pruned."""
    cut = window.cut
    return (cut.tokens if cut else 0) + sum(message.tokens for message in messages[cut.at if cut else 1 : stop])


def test_below_high_water_nothing_is_cut() -> None:
    """Only the task is found. At high water, a cut that costs nothing is made without announcement."""
    messages = (user("task"), *chat(60, 30))
    states = fold_all(messages)
    high = int(ROOM * POLICY.high_water)
    first = next(stop for stop, state in enumerate(states) if state.cuts)
    assert all(state == Window(task=0) for state in states[1:first])
    assert behind_head(messages, Window(), first - 1) < high <= behind_head(messages, Window(), first)
    assert not any(state.prefetch_tokens for state in states)


def test_a_cut_that_does_not_pay_is_fixed_near_the_limit() -> None:
    """It is left open until the next request may be too long. Then it is fixed, and its summary is asked for ahead."""
    messages = (user("task"), *chat(60, 30))
    first, states = 0, fold_all(messages, DEAR)
    while not states[first].cuts:
        size = behind_head(messages, Window(), first)
        assert size <= ROOM
        is_fixed = states[first].next_cut is not None
        assert is_fixed or size + messages[first].tokens <= ROOM
        assert not is_fixed or size + 2 * messages[1].tokens >= ROOM
        assert states[first].is_near is is_fixed
        assert states[first].prefetch_tokens == (POLICY.summary_max_tokens if is_fixed else 0)
        first += 1
    assert behind_head(messages, Window(), first) > ROOM
    assert states[first].cuts[-1].at == states[first - 1].next_cut


def test_a_cut_that_is_asked_for_is_not_announced_again() -> None:
    messages = (user("task"), *chat(60, 30))
    first = next(stop for stop, state in enumerate(fold_all(messages, DEAR)) if state.is_near)
    room = measure(messages[:first], DEAR, limit=LIMIT, fixed_tokens=0)
    window = Fold(room, DEAR).extend(messages[:first], cold={first: ColdCut.NOW}).finish()
    assert window.cuts
    assert not window.is_near


def test_prune_comes_first_where_it_leaves_low_water() -> None:
    """If placeholders free enough, no summary is asked for. A later summary covers the placeholders as well."""
    states = fold_all(session(80, call_tokens=2, result_tokens=280))
    first = next(state for state in states if state.cuts or state.prune_stop)
    assert first.prune_stop > 2
    assert first.cuts == ()
    cut = states[-1].cuts[0]
    assert (cut.kind, cut.prune_stop) == (CutKind.SUMMARISE, first.prune_stop)
    assert cut.at > first.prune_stop


def test_a_summary_is_asked_for_ahead_unless_pruning_is_expected_to_do() -> None:
    """In a chat it is, as soon as the cut is fixed. With large results it is not, until they are pruned."""
    states = fold_all(chat(100, 30), DEAR)
    for before, after in pairwise(states):
        if before.cuts != after.cuts:
            assert before.prefetch_tokens == after.cuts[-1].reserved_tokens
        assert after.next_cut is not None or not after.prefetch_tokens
    assert len(states[-1].cuts) >= 2
    states = fold_all(session(11, call_tokens=2, result_tokens=300), DEAR)
    assert states[-1].prune_stop > 0
    assert any(state.next_cut for state in states)
    assert not any(state.prefetch_tokens for state in states)


@pytest.mark.parametrize(("budget", "kept"), [(53, 0), (110, 2), (100_000, 5)])
def test_user_messages_are_kept_up_to_their_budget(budget: int, kept: int) -> None:
    """The newest ones stay, oldest first, up to the budget and to a quarter of low water."""
    policy = replace(POLICY, overflow_strategy=OverflowStrategy.SUMMARIZE, keep_user_tokens=budget)
    cut = fold((user("task"), *chat(30, 50)), policy).cuts[0]
    assert len(cut.kept) == kept
    users = list(range(1, cut.at, 2))
    assert list(cut.kept) == users[len(users) - kept :]


@given(messages=transcripts(), fixed_tokens=st.integers(0, 100))
def test_error_never_cuts(messages: tuple[Message, ...], fixed_tokens: int) -> None:
    messages = (user("Begin."), *messages)
    window = fold(messages, replace(POLICY, overflow_strategy=OverflowStrategy.ERROR), fixed_tokens=fixed_tokens)
    assert (window.cuts, window.prune_stop) == ((), 0)


@given(messages=transcripts())
def test_prune_never_asks_and_summarize_never_prunes(messages: tuple[Message, ...]) -> None:
    """With `prune` every cut is a digest. With `summarize` no result becomes a placeholder."""
    messages = (user("Begin."), *messages)
    by_prune = fold(messages, replace(POLICY, overflow_strategy=OverflowStrategy.PRUNE), limit=1000)
    assert {cut.kind for cut in by_prune.cuts} <= {CutKind.DIGEST}
    assert fold(messages, replace(POLICY, overflow_strategy=OverflowStrategy.SUMMARIZE), limit=1000).prune_stop == 0


def test_one_long_turn_is_pruned_after_all() -> None:
    """If a single turn is the whole session and too large for its room, its results are pruned."""
    window = fold(session(80, call_tokens=2, result_tokens=280), replace(POLICY, protect_turns=2))
    assert window.prune_stop > 2


def test_a_head_that_leaves_no_room_is_not_cut_behind() -> None:
    """If less than a sixteenth of the limit is left, nothing is cut at any step."""
    head = int(LIMIT * (1 - LEAST_ROOM_SHARE)) + 1
    assert fold(session(200), fixed_tokens=head) == Window(task=1, is_high=True)


def test_a_huge_step_is_cut_before() -> None:
    """If a step fills the room alone, everything before it is cut. Later its result becomes a placeholder."""
    huge = (assistant("look", call("1")), result("1", fill("huge", 2800)))
    messages = (user("task"), *chat(4, 50), *huge)
    assert fold(messages, WHOLE).cuts[-1].at == 9
    assert fold((*messages, assistant("I see.")), WHOLE).prune_stop == 11


def test_a_step_that_is_too_long_shares_what_is_left() -> None:
    """The largest results are shortened first. What is before the step stays if it is little. Otherwise it is cut."""
    sizes = (100, 2000, 300, 2000)
    calls = [call(str(number)) for number in range(len(sizes))]
    step = (assistant("look", *calls), *(result(str(number), fill("x", size)) for number, size in enumerate(sizes)))
    little, much = (user("task"), *chat(2, 50)), (user("task"), *chat(10, 80))
    for before in (little, much):
        window = fold((*before, *step))
        start = len(before) + 1
        assert [cut.at for cut in window.cuts] == ([] if before is little else [len(before)])
        assert [cap.at for cap in window.caps] == [start + 1, start + 3]
        assert window.caps[0].tokens == window.caps[1].tokens > 400
        kept = sum(cap.tokens for cap in window.caps) + sum(step[index].tokens for index in (0, 1, 3))
        kept += window.cuts[-1].tokens if window.cuts else sum(message.tokens for message in before[1:])
        assert AHEAD - 1 <= kept <= AHEAD
        assert fold((*before, *step, assistant("I see."))).caps == window.caps
        assert fold((*before, *step), WHOLE).caps == ()


def test_results_that_the_model_has_not_seen_are_not_cut_for_words_behind_them() -> None:
    """A reminder after the newest results is part of the same request. They share what is left, and none is cut."""
    step = (assistant("look", call("1")), result("1", fill("x", 4000)))
    for words in ((user("Remember the rules."),), (system("Remember."), user("Go on."))):
        window = fold((user("task"), *chat(2, 50), *step, *words))
        assert window.cuts == ()
        assert [cap.at for cap in window.caps] == [6]


def test_a_task_that_does_not_fit_leaves_a_quarter_of_the_limit() -> None:
    """It is shortened from the first request on, to the same size however the conversation continues."""
    task = user(fill("a whole book", 9000))
    windows = [fold((system(), task, *chat(turns, 60))) for turns in (0, 1, 5, 9)]
    caps = {window.caps for window in windows}
    assert len(caps) == 1
    ((cap,),) = caps
    assert cap.at == 1
    assert LIMIT * 0.6 < cap.tokens <= LIMIT * 0.75
    assert fold((system(), task), WHOLE).caps == ()
    # If the head leaves less than that, the task gets the rest of the limit.
    window = fold((system(fill("rules", 2700)), task))
    assert [cap.tokens for cap in window.caps] == [LIMIT // HEAD_STEPS * 9]


def test_words_that_no_answer_has_followed_are_one_request() -> None:
    """A huge message before a reminder is still the user's newest one: it is shortened, and not listed in a digest."""
    huge = user(fill("what was asked", 9000))
    for before in ((user("task"), assistant("yes")), (user("task"),), (user("task"), *chat(2, 60))):
        for behind in ((user("Remember."),), (user("Remember."), system("And this."), user("And that."))):
            window = fold((*before, huge, *behind))
            assert window.cuts == ()
            assert [cap.at for cap in window.caps] == [len(before)]
    step = (assistant("look", call("1")), result("1", "ok"))
    assert [cap.at for cap in fold((user("task"), *step, huge, user("Remember."))).caps] == [3]


def test_a_task_that_just_fits_does_not_end_the_session() -> None:
    """It goes out whole while everything fits the window. Once it leaves no room for a cut, it stays shortened."""
    policy = replace(POLICY, completion_reserve=800, context_window=LIMIT + 800)
    for tokens in range(int(LIMIT * 0.85), LIMIT + 400, 60):
        messages = (user(fill("a long task", tokens)), *chat(40, 60))
        room = measure(messages, policy, limit=LIMIT, spare=policy.spare_tokens())
        folded, caps = Fold(room, policy), ()
        for message in messages:
            folded.add(message)
            window = folded.finish()
            assert folded._forwarded <= folded._cuts.marks.tokens + room.spare
            assert window.caps[: len(caps)] == caps
            caps = window.caps
        assert folded.window.task == 0
        assert {cap.at for cap in caps} <= {0}


def test_high_water_is_told_exactly_from_its_size_on() -> None:
    never, head = replace(POLICY, overflow_strategy=OverflowStrategy.ERROR), user("Do it.")
    high = int(measure((head,), never, limit=LIMIT).tokens * never.high_water)
    frame = assistant(fill("x", 100)).tokens - 100
    for tokens, is_high in ((high - 1, False), (high, True)):
        assert fold((head, assistant(fill("x", tokens - frame))), never).is_high is is_high


def test_high_water_is_told_if_memory_goes_and_nothing_else_happens() -> None:
    """Without its memory the transcript is far below high water again."""
    folded = Fold(measure((user(),), POLICY, limit=LIMIT), POLICY)
    folded.add(user())
    folded.add(assistant("Yes."))
    assert not folded.window.is_high
    folded.add(user("Go on."), memory_tokens=LIMIT)
    window = folded.finish()
    assert (window.memory_stop, window.cuts, window.prune_stop) == (3, (), 0)
    assert window.is_high


@pytest.mark.parametrize(("kept", "short_tokens", "is_short"), [((), 150, True), ((), 151, False), ((3,), 10, False)])
def test_a_long_user_message_becomes_short_in_a_later_turn_unless_a_cut_has_kept_it(
    kept: tuple[int, ...], short_tokens: int, *, is_short: bool
) -> None:
    """It may stand right behind the cut. It must save half of what is read again for it."""
    long, answer = replace(user("long"), tokens=400), replace(assistant("ok"), tokens=100)
    messages = (system(), user("Task."), assistant("Yes."), long, answer, user("Next."))
    folded = Fold(measure(messages, POLICY, limit=LIMIT, fixed_tokens=0), POLICY)
    folded.extend(messages[:4], short_tokens={3: short_tokens})
    cut = Cut(CutKind.DIGEST, 3 + len(kept), 9, kept, 9)
    folded.window = structs.replace(folded.window, cuts=(cut,))
    assert bool(folded.extend(messages).finish().users_stop) is is_short


def test_a_task_statement_is_not_shortened_before_it_was_said() -> None:
    """Messages of the model may come before it, and may exceed the limit alone."""
    task = replace(user("Task."), tokens=LIMIT - 100)
    messages = (system(), *(replace(assistant(f"{number}"), tokens=LIMIT) for number in range(3)), task)
    room = Room.measure(messages, 0, LIMIT, shortens=True)
    assert room.late is not None
    folded = Fold(room, POLICY).extend(messages[:-1])
    assert folded.finish().caps == ()
    assert [cap.at for cap in folded.extend(messages).finish().caps] == [4]


def test_calls_that_come_back_after_their_results_were_removed_are_noted() -> None:
    """They are what a cut keeps, so that the model does not ask again."""
    for prune_stop in (0, 1000):
        folded = Fold(measure((user(),), POLICY, limit=LIMIT, fixed_tokens=0), POLICY).extend((user("Task."),))
        folded.window = structs.replace(folded.window, prune_stop=prune_stop)
        for number in range(REMOVALS + 1):
            folded.add(assistant(None, call(f"c{number}")))
            folded.add(result(f"c{number}", "same"))
        assert list(folded._sums.repeats.list()) == [2 * REMOVALS + 1] * bool(prune_stop)
