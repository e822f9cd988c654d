"""Tools that were loaded by a search."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import FREE, assistant, call, fill, fold, result, system, user

from trimtab.rules.conversation import Message, ToolCall
from trimtab.rules.policy import Policy
from trimtab.rules.window.kept import MAX_LOOPS, MAX_REMINDERS, REMOVALS, Loaded, Reminders, Repeats

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

        assert bool(cut.lost) is is_lost
        assert cut.kept_steps
        assert set(cut.kept_steps) == set(cut.bare_steps)


def test_a_cut_keeps_the_search_that_loaded_tools() -> None:
    """Whether they were called or not, and however old it is. Its result is never pruned."""
    messages = [system(), user("task"), *_search(0, "a", "b")]
    for number in range(120):
        messages += _use(number, "a" if number % 2 else "run")
    window = fold(messages, POLICY, limit=3000)
    assert len(window.cuts) > 1
    assert all(cut.kept_steps == ((2, 4),) for cut in window.cuts)


@pytest.mark.parametrize("at_threshold", [False, True])
def test_all_that_was_called_stays_in_half_of_the_room(*, at_threshold: bool) -> None:
    """However deep a cut goes: the share of what may stay is one of the size at which a cut is due."""
    messages, high = [system(), user("task")], 0.34
    number = int(12 * (high if at_threshold else 1))
    for at in range(number):
        messages += [*_search(at, f"t{at}", tokens=70), *_use(at, f"t{at}")]
    searches = {(at - 1, at + 1) for at, message in enumerate(messages) if message.loads}
    for at in range(number, number + 60):
        messages += _use(at, f"t{at % number}")
    policy = replace(POLICY, high_water=high, low_water=high / 4, cuts_at_threshold=at_threshold)
    assert searches <= {*fold(messages, policy, limit=3000).cut.kept_steps}


def test_another_result_of_the_step_is_pruned() -> None:
    """However long it is, so the search stays; to repeat the call is no loop as long as its result stays away."""
    found, other = _search(0, "a"), result("o", fill("out", 2000))
    both = assistant("I look.", call("s0", "search"), call("o", "read"))
    messages = [system(), user("task"), both, found[1], other]
    for number in range(60):
        messages += _use(number, "a")
    window = fold(messages, POLICY, limit=3000)
    assert window.cut.kept_steps == window.cut.bare_steps == ((2, 5),)
    assert window.is_removed(2)
    assert {2, 3, 4} <= set(window.pruned)


def test_a_search_that_is_too_long_goes() -> None:
    """Otherwise nothing else would fit."""
    messages = [system(), user("task"), *_search(0, "a", tokens=2000)]
    for number in range(60):
        messages += _use(number, "a")
    window = fold(messages, POLICY, limit=3000)
    assert window.cut.kept_steps == ()


# Reminders: of equal ones the newest, newest first, as far as a budget goes.

KINDS = 6
ADDED = st.lists(st.tuples(st.integers(0, KINDS - 1), st.integers(1, 3)), max_size=60)
"""Reminders: what each says, and how far behind the one before it stands."""


def _make(kind: int) -> Message:
    return system(fill(f"reminder {kind}", 5 + 7 * kind))


def _add(added: Sequence[tuple[int, int]]) -> tuple[Reminders, dict[int, Message]]:
    reminders, placed, at = Reminders(), dict[int, Message](), 0
    for kind, gap in added:
        at += gap
        placed[at] = _make(kind)
        reminders.add(at, placed[at])
    return reminders, placed


@given(added=ADDED, at=st.integers(0, 200), budget=st.integers(-50, 300))
def test_the_newest_of_equal_ones_fit_from_the_newest_on(added: list[tuple[int, int]], at: int, budget: int) -> None:
    """The same as when each is looked at, from the newest to the oldest, until one does not fit."""
    reminders, placed = _add(added)
    newest = {message.digest: index for index, message in placed.items()}
    kept: list[int] = []
    tokens = 0
    for index in sorted((index for index in newest.values() if index < at), reverse=True):
        if tokens + placed[index].tokens > budget:
            break
        tokens += placed[index].tokens
        kept.append(index)
    oldest, kept_tokens = reminders.fit(at, budget)
    assert kept_tokens == tokens
    assert list(reminders.list(oldest, at)) == kept[::-1]


def test_only_the_newest_of_many_different_ones_are_kept() -> None:
    """Else each decision about a transcript of small system messages would look at all of them."""
    reminders, number = Reminders(), MAX_REMINDERS + 100
    for index in range(number):
        reminders.add(index, system(f"reminder {index}"))
    oldest, _ = reminders.fit(number, number * 1000)
    assert list(reminders.list(oldest, number)) == [*range(100, number)]


# A call that is made again because its result was removed is a loop the third time.


def add(
    repeats: Repeats, index: int, *calls: ToolCall, results: Sequence[str] = ("same",), removed: bool = True
) -> None:
    """Add a step with these calls; each gets one of the results in turn."""
    repeats.add(index, assistant(None, *calls), lambda _: removed)
    for number, each in enumerate(calls):
        repeats.answer(result(each.id, results[number % len(results)]))


def test_only_calls_behind_a_removal_count() -> None:
    """Equal calls while the last result is there make no loop, and neither do other arguments or another result."""
    repeats = Repeats()
    for index in range(20):
        add(repeats, index, call(f"c{index}"), removed=False)
        add(repeats, index, call(f"d{index}", arguments=f"{index}"))
        add(repeats, index, call(f"e{index}", "test"), results=[f"run {index}"])
    assert list(repeats.list()) == []


def test_the_third_one_is_a_loop_and_the_newest_step_counts() -> None:
    repeats = Repeats()
    found = []
    for index in range(REMOVALS + 3):
        add(repeats, index, call(f"c{index}"))
        found.append(list(repeats.list()))
    assert found == [[], [], [], [3], [4], [5]]


def test_newest_loops_come_first_and_are_few() -> None:
    repeats = Repeats()
    for index in range(40 * (REMOVALS + 1)):
        calls = [call(f"{index}-{name}", name, arguments=f"{index % 40}") for name in ("read", "list")]
        add(repeats, index, *calls)
    newest = list(repeats.list())
    assert newest == sorted(newest, reverse=True)
    assert len(newest) == len(set(newest)) == MAX_LOOPS // 2
    assert repeats.size_bytes > 0
