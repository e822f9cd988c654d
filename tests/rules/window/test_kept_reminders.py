"""Reminders: of equal ones the newest, newest first, as far as a budget goes."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from support.builders import fill, system

from trimtab.rules.conversation import Message
from trimtab.rules.window.kept import Reminders

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


def test_one_that_comes_again_behind_a_cut_is_not_kept_before_it() -> None:
    """Only what is said nowhere else stays."""
    reminders, _ = _add([(1, 1), (2, 1), (1, 5)])
    oldest, tokens = reminders.fit(4, 1000)
    assert list(reminders.list(oldest, 4)) == [2]
    assert tokens == _make(2).tokens


def test_equal_reminders_weigh_little() -> None:
    """A cache bounded by bytes can tell how many different ones there are."""
    equal, different = Reminders(), Reminders()
    for index in range(1000):
        equal.add(index, _make(0))
        different.add(index, system(f"reminder {index}"))
    assert 0 < equal.size_bytes < 20_000 < different.size_bytes
