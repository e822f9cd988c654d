"""Tools that were loaded by a search."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import FREE, assistant, call, fill, fold, result, system, user

from trimtab.rules.conversation import Message, Role
from trimtab.rules.policy import Policy
from trimtab.rules.window.kept import Loaded

POLICY = Policy(context_window=4000, completion_reserve=0, prices=FREE)


def _search(number: int, *names: str, tokens: int = 20) -> list[Message]:
    found = replace(result(f"s{number}", fill("found", tokens)), loads=names)
    return [assistant("I look.", call(f"s{number}", "search")), found]


def _use(number: int, name: str, tokens: int = 60) -> list[Message]:
    return [assistant("I use.", call(f"u{number}", name)), result(f"u{number}", fill("out", tokens))]


def test_steps_whose_tools_were_called_come_first() -> None:
    """The newest first. A tool counts for the newest step that loaded it."""
    loaded = Loaded()
    for step, message in enumerate(
        [*_search(0, "a", "b")[1:], *_search(1, "c")[1:], assistant(None, call("1", "a")), *_search(2, "c")[1:]]
    ):
        loaded.add(step, message)
    assert list(loaded.list(9)) == [(0, True), (3, False)]
    loaded.add(4, assistant(None, call("2", "c"), call("3", "unknown")))
    assert list(loaded.list(9)) == [(3, True), (0, True)]


def test_steps_that_the_client_wants_kept_come_before_all_others() -> None:
    """Those before the cut, the newest first and each once; and a cut keeps them, with only what is wanted of them."""
    loaded = Loaded()
    loaded.add(2, replace(user("Heed this."), keep=True))
    for message in _search(0, "a")[1:]:
        loaded.add(3, message)
    for text in ("one", "two"):
        loaded.add(5, replace(result(text, text), keep=True))

    assert list(loaded.list(9)) == [(5, True), (2, True), (3, False)]
    assert list(loaded.list(5)) == [(2, True), (3, False)]
    assert loaded.size_bytes > Loaded().size_bytes


def test_a_cut_keeps_what_the_client_wants_and_counts_what_it_must_give_up() -> None:
    steps = [[assistant("I look.", call(f"c{n}", "read")), result(f"c{n}", fill(f"out {n} ", 150))] for n in range(60)]
    few, many = (
        [[one, replace(two, keep=at in marked)] for at, (one, two) in enumerate(steps)]
        for marked in ({1}, {*range(30)})
    )
    for session, is_lost in ((few, False), (many, True)):
        cut = fold([user("Start."), *(message for step in session for message in step)], POLICY, limit=4000).cut

        assert cut is not None
        assert bool(cut.lost) is is_lost
        assert cut.kept_steps
        assert set(cut.kept_steps) == set(cut.bare_steps)


def test_a_cut_keeps_the_search_that_loaded_tools() -> None:
    """Whether they were called or not, and however old it is. Its result is never pruned."""
    messages = [system(), user("task"), *_search(0, "a", "b")]
    for number in range(120):
        messages += _use(number, "a" if number % 2 else "run")
        window = fold(messages, POLICY, limit=3000)
        assert all(cut.kept_steps == ((2, 4),) for cut in window.cuts)
    assert window.cuts


def test_a_search_behind_the_cut_makes_an_older_one_needless() -> None:
    """Each tool is loaded once."""
    messages = [system(), user("task"), *_search(0, "a")]
    for number in range(30):
        messages += _use(number, "a")
    messages += _search(1, "a")
    for number in range(30, 60):
        messages += _use(number, "a")
    window = fold(messages, POLICY, limit=3000)
    assert window.cut is not None
    assert window.cut.kept_steps in {((64, 66),), ()}


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(5, 400)), min_size=20, max_size=60),
    st.sampled_from([None, 3]),
)
def test_what_was_called_stays_loaded_as_far_as_there_is_room(
    rows: Sequence[tuple[int, int]], max_turns: int | None
) -> None:
    """The kept steps are whole, begin with their calls, and leave room for the rest."""
    messages = [system(), user("task")]
    for number, (kind, tokens) in enumerate(rows):
        if kind == 0:
            messages += _search(number, f"t{number}", tokens=tokens)
        elif kind == 1:
            messages.append(user(fill("words", tokens)))
        else:
            messages += _use(number, f"t{number // 2}", tokens)
    policy = replace(POLICY, max_turns=max_turns)
    window = fold(messages, policy, limit=3000)
    for cut in window.cuts:
        for start, stop in cut.kept_steps:
            assert stop <= cut.at
            assert messages[start].tool_calls
            assert all(message.role is Role.TOOL for message in messages[start + 1 : stop])
        assert cut.bare_steps == cut.kept_steps
        assert sum(message.tokens for step in cut.kept_steps for message in messages[slice(*step)]) <= 1500


@pytest.mark.parametrize("at_threshold", [False, True])
@pytest.mark.parametrize("high", [0.34, 0.8])
def test_all_that_was_called_stays_in_half_of_the_room(high: float, *, at_threshold: bool) -> None:
    """However deep a cut goes: the share of what may stay is one of the size at which a cut is due."""
    messages = [system(), user("task")]
    number = int(12 * (high if at_threshold else 1))
    for at in range(number):
        messages += [*_search(at, f"t{at}", tokens=70), *_use(at, f"t{at}")]
    searches = {(at - 1, at + 1) for at, message in enumerate(messages) if message.loads}
    for at in range(number, number + 60):
        messages += _use(at, f"t{at % number}")
    policy = replace(POLICY, high_water=high, low_water=high / 4, cuts_at_threshold=at_threshold)
    window = fold(messages, policy, limit=3000)
    assert window.cut is not None
    assert searches <= {*window.cut.kept_steps}


def test_another_result_of_the_step_is_pruned() -> None:
    """However long it is, so the search stays; to repeat the call is no loop as long as its result stays away."""
    found, other = _search(0, "a"), result("o", fill("out", 2000))
    both = assistant("I look.", call("s0", "search"), call("o", "read"))
    messages = [system(), user("task"), both, found[1], other]
    for number in range(60):
        messages += _use(number, "a")
    window = fold(messages, POLICY, limit=3000)
    assert window.cut is not None
    assert window.cut.kept_steps == window.cut.bare_steps == ((2, 5),)
    assert window.is_removed(2)
    assert {2, 3, 4} <= set(window.pruned)


def test_a_search_that_is_too_long_goes() -> None:
    """Otherwise nothing else would fit."""
    messages = [system(), user("task"), *_search(0, "a", tokens=2000)]
    for number in range(60):
        messages += _use(number, "a")
    window = fold(messages, POLICY, limit=3000)
    assert window.cut is not None
    assert window.cut.kept_steps == ()
