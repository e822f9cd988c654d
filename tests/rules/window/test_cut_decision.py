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
    valid_transcripts,
)
from support.builders import fold as fold_by

from trimtab.rules.conversation import Message
from trimtab.rules.policy import PREFETCH_GAP, OnExceeded, OverflowStrategy, Policy, Prices
from trimtab.rules.window.cut_candidates import SUMMARY_FRAME_TOKENS
from trimtab.rules.window.cut_decision import Fold
from trimtab.rules.window.kept import REMOVALS
from trimtab.rules.window.room import HEAD_STEPS, LEAST_ROOM_SHARE, MIN_ROOM_SHARE, Room
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
STRATEGIES = st.sampled_from(OverflowStrategy)


def fold(messages: Sequence[Message], policy: Policy = POLICY, *, fixed_tokens: int = 0, limit: int = LIMIT) -> Window:
    """The state after the last message."""
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
    """A conversation without tools."""
    pairs = ((user(fill(f"u{turn}", tokens)), assistant(fill(f"a{turn}", tokens))) for turn in range(turns))
    return tuple(message for pair in pairs for message in pair)


def moves(states: Sequence[Window]) -> int:
    """How often the forwarded prefix changed."""
    return sum((left.cuts, left.prune_stop) != (right.cuts, right.prune_stop) for left, right in pairwise(states))


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
    """The next request is not expected to be cut, if it was before."""
    messages = (user("task"), *chat(60, 30))
    first = next(stop for stop, state in enumerate(fold_all(messages, DEAR)) if state.is_near)
    room = measure(messages[:first], DEAR, limit=LIMIT, fixed_tokens=0)
    window = Fold(room, DEAR).extend(messages[:first], cold={first: ColdCut.NOW}).finish()
    assert window.cuts
    assert not window.is_near


@pytest.mark.parametrize("strategy", [OverflowStrategy.SUMMARIZE, OverflowStrategy.AUTO_COMPACT])
def test_the_cut_is_the_one_that_was_fixed(strategy: OverflowStrategy) -> None:
    """It stays the same until it is applied. After that it is no longer fixed."""
    states = fold_all(chat(60, 60), replace(DEAR, overflow_strategy=strategy))
    applied = 0
    for before, after in pairwise(states):
        if len(after.cuts) > len(before.cuts):
            applied += 1
            assert (after.next_cut, after.prefetch_tokens) == (None, 0)
            assert after.cuts[-1].at == before.next_cut
            assert after.cuts[-1].reserved_tokens == before.prefetch_tokens
        elif before.next_cut is not None:
            assert after.next_cut == before.next_cut
    assert applied >= 2


@pytest.mark.parametrize("prices", [FREE, DEAR.prices])
@pytest.mark.parametrize("low_water", [0.3, 0.4, 0.5])
def test_a_cut_leaves_about_low_water(low_water: float, prices: Prices) -> None:
    """With its summary and the text carried over, at most low water stays, or less by a message or two.

    A cut that was fixed ahead leaves low water at the limit. What came after that stays, too.
    """
    messages = (user("task"), *chat(60, 30))
    states = fold_all(messages, replace(POLICY, low_water=low_water, keep_user_tokens=0, prices=prices))
    for stop, (before, after) in enumerate(pairwise(states), start=1):
        if after.cut != before.cut and after.cut:
            stays = behind_head(messages, after, stop)
            excess = max(behind_head(messages, before, stop) - ROOM, 0)
            assert excess == 0 or before.next_cut is not None
            assert ROOM * low_water - 3 * messages[1].tokens <= stays - excess <= ROOM * low_water
            assert after.cut.made_at == stop
    assert len(states[-1].cuts) >= 1


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


@pytest.mark.parametrize("prices", [FREE, Prices(), Prices(1, 0.02, 4), DEAR.prices])
@pytest.mark.parametrize("tokens", [(20, 20), (10, 40), (5, 60)])
def test_only_near_the_limit_a_cut_is_announced(tokens: tuple[int, int], prices: Prices) -> None:
    """So near that one more step as large as usual would not fit: a request that does not fit must not wait."""
    messages = session(120, call_tokens=tokens[0], result_tokens=tokens[1])[1:]
    states = fold_all(messages, replace(POLICY, prices=prices, overflow_strategy=OverflowStrategy.SUMMARIZE))
    for stop, (before, after) in enumerate(pairwise(states)):
        size = behind_head(messages, before, stop) if stop else 0
        is_near = bool(before.prefetch_tokens)
        assert not is_near or (size >= AHEAD and size + 4 * sum(tokens) >= ROOM)
        assert is_near or size + messages[stop].tokens <= ROOM
        if after.cuts != before.cuts and is_near:
            assert after.cuts[-1].at == before.next_cut
    assert len([cut for cut in states[-1].cuts if cut.kind is CutKind.SUMMARISE]) >= 2


def test_a_summary_is_reserved_for_and_keeps_the_users_words() -> None:
    """The cut's size is the sum of the reserve, the frame, kept user messages, and system messages in between."""
    messages = [user("task"), *chat(2, 50), system(fill("note", 30)), *chat(30, 50)]
    cut = fold(messages, replace(POLICY, overflow_strategy=OverflowStrategy.SUMMARIZE)).cuts[0]
    assert cut.kept_systems == (5,)
    cut = structs.replace(cut, made_at=0, kept_systems=())
    # Three messages of 54 tokens fit into the 200 for the user's words.
    users = [index for index, message in enumerate(messages[: cut.at]) if message.role == "user" and index][-3:]
    note = messages[5].tokens
    carried = int(int(ROOM * POLICY.low_water) * POLICY.anchor_share)
    tokens = SUMMARY_FRAME_TOKENS + 200 + carried + note + 3 * 54
    assert cut == Cut(CutKind.SUMMARISE, cut.at, 200, tuple(users), tokens, anchor_tokens=carried)


@pytest.mark.parametrize(("budget", "kept"), [(0, 0), (53, 0), (54, 1), (110, 2), (100_000, 5)])
def test_user_messages_are_kept_up_to_their_budget(budget: int, kept: int) -> None:
    """The newest ones stay, oldest first, up to the budget and to a quarter of low water."""
    policy = replace(POLICY, overflow_strategy=OverflowStrategy.SUMMARIZE, keep_user_tokens=budget)
    cut = fold((user("task"), *chat(30, 50)), policy).cuts[0]
    assert len(cut.kept) == kept
    users = list(range(1, cut.at, 2))
    assert list(cut.kept) == users[len(users) - kept :]


def test_the_last_user_message_is_kept_whatever_it_costs() -> None:
    """If no newer user message follows the cut, the newest one before it is kept, whatever the budget is."""
    messages = (user("task"), assistant("yes"), user(fill("now this", 300)), *session(60, call_tokens=40)[2:])
    for strategy in (OverflowStrategy.AUTO_COMPACT, OverflowStrategy.SUMMARIZE):
        policy = replace(POLICY, keep_user_tokens=0, overflow_strategy=strategy)
        window = fold(messages, policy)
        assert window.cuts
        assert all(cut.kept == (2,) for cut in window.cuts)


@pytest.mark.parametrize(
    ("min_steps", "kind"),
    [(1, CutKind.SUMMARISE), (2, CutKind.SUMMARISE), (3, CutKind.SUMMARISE), (4, None), (5, None)],
)
def test_too_few_steps_are_not_worth_a_summary(min_steps: int, kind: CutKind | None) -> None:
    """With fewer than `min_steps` steps before the cut, no model is asked. Nothing is cut while the request fits."""
    policy = replace(POLICY, summary_min_steps=min_steps)
    # Four messages of equal length. The newest one is larger than what a cut may leave.
    messages = (user("task"), *chat(2, 640))
    window = fold(messages, policy)
    assert (window.cut.kind if window.cut else None) == kind


@pytest.mark.parametrize("strategy", [OverflowStrategy.SUMMARIZE, OverflowStrategy.AUTO_COMPACT])
def test_a_session_too_short_to_pay_for_a_summary_is_cut_without_a_model(strategy: OverflowStrategy) -> None:
    """Completions are dear. The digest comes earlier than a summary could; who wants only summaries waits."""
    messages, policy = (user("task"), *chat(200, 12)), replace(POLICY, risk_share=0.15, high_water=0.3, low_water=0.15)
    policy = replace(policy, prices=Prices(1, 0.1, 8), summary_max_tokens=60, overflow_strategy=strategy)
    cuts = [state.cuts[0] for state in fold_all(messages, policy) if state.cuts]
    kind = CutKind.DIGEST if strategy is OverflowStrategy.AUTO_COMPACT else CutKind.SUMMARISE
    assert cuts[0].kind is kind


def test_over_the_limit_too_few_steps_are_cut_without_a_model() -> None:
    """Messages that do not fit must give way, even if only a digest replaces them."""
    window = fold((user("task"), *chat(2, 900)), replace(POLICY, summary_min_steps=100))
    assert [cut.kind for cut in window.cuts] == [CutKind.DIGEST]


@given(messages=transcripts(), fixed_tokens=st.integers(0, 100))
def test_error_never_cuts(messages: tuple[Message, ...], fixed_tokens: int) -> None:
    """With `error`, nothing is cut and nothing is pruned."""
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


@pytest.mark.parametrize("strategy", [OverflowStrategy.AUTO_COMPACT, OverflowStrategy.PRUNE])
def test_results_of_the_newest_turns_are_protected(strategy: OverflowStrategy) -> None:
    """Nothing after the start of the newest turns is pruned, as long as those turns alone stay below prefetch."""
    turns = [(user(f"turn {number}"), *session(2, call_tokens=2, result_tokens=280)[2:]) for number in range(12)]
    messages = [message for turn in turns for message in turn]
    pruned = 0
    for protect in (1, 2):
        policy = replace(POLICY, protect_turns=protect, overflow_strategy=strategy)
        for stop, (before, after) in enumerate(pairwise(fold_all(messages, policy)), start=1):
            if after.prune_stop > before.prune_stop:
                users = [index for index in range(stop) if messages[index].role == "user"]
                assert after.prune_stop <= users[-protect]
                pruned += 1
    assert pruned >= 1


def test_one_long_turn_is_pruned_after_all() -> None:
    """If a single turn is the whole session and too large for its room, its results are pruned."""
    window = fold(session(80, call_tokens=2, result_tokens=280), replace(POLICY, protect_turns=2))
    assert window.prune_stop > 2


@given(messages=transcripts(), strategy=STRATEGIES, limit=st.sampled_from([600, 1200, LIMIT]))
def test_cuts_fall_between_steps(messages: tuple[Message, ...], strategy: OverflowStrategy, limit: int) -> None:
    """No cut separates a call from its results, or reaches into the last step. Each cut is after the previous one."""
    messages = (user("Begin."), *messages)
    window = fold(messages, replace(POLICY, overflow_strategy=strategy), limit=limit)
    places = [cut.at for cut in window.cuts]
    starts = [index for index, message in enumerate(messages) if message.role not in {"tool", "function"}]
    assert set(places) <= set(starts)
    assert places == sorted(set(places))
    assert all(list(cut.kept) == sorted(index for index in cut.kept if 0 < index < cut.at) for cut in window.cuts)


@given(messages=valid_transcripts(), extra=st.integers(0, LIMIT // HEAD_STEPS - 20), strategy=STRATEGIES)
def test_a_volatile_head_does_not_move_the_cut(
    messages: tuple[Message, ...], extra: int, strategy: OverflowStrategy
) -> None:
    """A small tool or a longer system prompt changes no decision while the rounded head is the same."""
    policy = replace(POLICY, overflow_strategy=strategy)
    body = (user("task"), assistant("ready"), *messages)
    plain = fold((system("It is 9:00."), *body), policy, fixed_tokens=5)
    assert fold((system("It is 9:00."), *body), policy, fixed_tokens=5 + extra) == plain
    assert fold((system("It is 9:00." + "!" * 4 * extra), *body), policy, fixed_tokens=5) == plain


def test_a_head_that_grows_a_lot_moves_the_cut() -> None:
    """Growth beyond the rounding does count."""
    messages = session(60)
    assert fold(messages, fixed_tokens=10) != fold(messages, fixed_tokens=10 + 3 * LIMIT // HEAD_STEPS)


@pytest.mark.parametrize("strategy", OverflowStrategy)
def test_a_head_that_leaves_no_room_is_not_cut_behind(strategy: OverflowStrategy) -> None:
    """If less than a sixteenth of the limit is left, nothing is cut at any step."""
    policy = replace(POLICY, overflow_strategy=strategy)
    head = int(LIMIT * (1 - LEAST_ROOM_SHARE)) + 1
    assert fold(session(200), policy, fixed_tokens=head) == Window(task=1, is_high=True)


def test_a_large_head_is_cut_behind_only_where_nothing_else_would_fit() -> None:
    """If less than a quarter of the limit is left, a state changes only after one that was over the room."""
    head = int(LIMIT * (1 - MIN_ROOM_SHARE)) + 1
    messages = session(60, call_tokens=4, result_tokens=16)
    room = Room.measure(messages, head, LIMIT)
    folded, before = Fold(room, POLICY), Window()
    moved = 0
    for message in messages:
        forwarded = folded._forwarded + (message.tokens if before.task is not None else 0)
        folded.add(message)
        if (folded.window.cuts, folded.window.prune_stop) != (before.cuts, before.prune_stop):
            moved += 1
            assert forwarded > room.tokens
        before = folded.window
        assert folded._forwarded <= room.tokens
    assert moved > 1


@pytest.mark.parametrize(
    "strategy", [OverflowStrategy.AUTO_COMPACT, OverflowStrategy.SUMMARIZE, OverflowStrategy.PRUNE]
)
@pytest.mark.parametrize("fixed_tokens", [0, 1500, 2300])
def test_a_move_pays_for_many_steps(strategy: OverflowStrategy, fixed_tokens: int) -> None:
    """Each move frees at least a tenth of the room. So even with a large head, most steps make no move."""
    messages = session(90, call_tokens=4, result_tokens=16)
    states = fold_all(messages, replace(POLICY, overflow_strategy=strategy), fixed_tokens=fixed_tokens)
    grain = LIMIT // HEAD_STEPS
    head = fixed_tokens + sum(message.tokens for message in messages[:2])
    room = LIMIT - -(-head // grain) * grain
    total = sum(message.tokens for message in messages)
    assert 1 <= moves(states) <= total / (room * 0.1)


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


def test_a_summary_of_its_full_size_is_cut_for_only_if_it_fits() -> None:
    """After long messages of the user, which stay verbatim, there is less room. Then the summary gets the rest."""
    room = LIMIT - LIMIT // HEAD_STEPS
    for words in range(room // 2, room, 40):
        messages = (user("task"), assistant("Yes."), user(fill("words", words)), *session(2)[2:])
        for said in range(room // 10, room, 40):
            folded = Fold(measure(messages, POLICY, limit=LIMIT), POLICY).extend(
                (*messages, assistant(fill("a", said)))
            )
            least = SUMMARY_FRAME_TOKENS + messages[2].tokens + said + 4
            assert folded._forwarded <= max(room, least)


def test_results_that_the_model_has_not_seen_are_not_cut_for_words_behind_them() -> None:
    """A reminder after the newest results is part of the same request. They share what is left, and none is cut."""
    step = (assistant("look", call("1")), result("1", fill("x", 4000)))
    for words in ((user("Remember the rules."),), (system("Remember."), user("Go on."))):
        window = fold((user("task"), *chat(2, 50), *step, *words))
        assert window.cuts == ()
        assert [cap.at for cap in window.caps] == [6]


def test_the_last_messages_own_text_gives_way_only_if_the_results_are_not_enough() -> None:
    """First the results of the step are shortened, then the user's text after them too. No earlier text is."""
    step = (assistant("look", call("1")), result("1", fill("x", 3000)))
    window = fold((user("task"), *step, user(fill("also", 900))))
    assert [cap.at for cap in window.caps] == [2]
    window = fold((user("task"), *step, user(fill("also", 4000))))
    assert [cap.at for cap in window.caps] == [2, 3]
    assert fold((user("task"), assistant(fill("said", 4000)))).caps == ()


def test_words_before_a_system_reminder_are_the_last_ones() -> None:
    """A reminder after them is part of the same request. They are shortened, not cut, and nothing is refused."""
    step = (assistant("look", call("1")), result("1", fill("x", 300)))
    for before in ((), step):
        for reminders in ((system("Remember."),), (system("Remember."), system("And this."))):
            messages = (user("task"), assistant("Yes."), *before, user(fill("a book", 4000)), *reminders)
            window = fold(messages)
            assert window.caps[-1].at == 2 + len(before)
            assert window.cut is None or window.cut.at <= 2 + len(before)
            assert fold((*messages, assistant("I see."))).caps == window.caps


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


def test_a_digest_shrinks_with_what_is_left() -> None:
    """If the open step leaves little, the digest's reserve is only that. It is replaced while the step is open."""
    calls = [call("1"), call("2")]
    messages = (user("task"), *chat(4, 100), assistant("look", *calls), result("1", fill("x", 2660)))
    first = fold(messages, WHOLE)
    second = fold((*messages, result("2", fill("y", 60))), WHOLE)
    assert [cut.at for cut in first.cuts] == [cut.at for cut in second.cuts]
    assert first.cuts[-1].kind is second.cuts[-1].kind is CutKind.DIGEST
    assert first.cuts[-1].reserved_tokens > second.cuts[-1].reserved_tokens >= 0


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


def test_of_many_words_without_an_answer_only_the_newest_stay() -> None:
    """A transcript of only user messages can be cut, too."""
    window = fold((user("task"), *(user(fill(str(number), 200)) for number in range(60))))
    assert window.cuts
    assert window.caps == ()


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


@given(messages=transcripts(), strategy=STRATEGIES)
def test_once_high_water_is_reached_it_stays_told(messages: tuple[Message, ...], strategy: OverflowStrategy) -> None:
    """A cut is made only after it was reached, but it may be reached without a cut."""
    windows = fold_all(messages, replace(POLICY, overflow_strategy=strategy))

    told = [window.is_high for window in windows]
    assert told == sorted(told)
    assert all(window.is_high for window in windows if window.cuts)


def test_high_water_is_told_exactly_from_its_size_on() -> None:
    """One token below it, nothing is told."""
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
