"""The window's state as values."""

import pytest
from msgspec import structs

from trimtab.rules.window.prune import ImageStop
from trimtab.rules.window.room import Cap
from trimtab.rules.window.state import Cut, CutKind, Window

FIRST = Cut(CutKind.SUMMARISE, 6, 200, (), 360, prune_stop=4)
SECOND = Cut(CutKind.DIGEST, 12, 90, (8,), 290, prune_stop=10)


def test_the_earlier_window_is_what_the_cut_put_an_end_to() -> None:
    """It lacks the last cut, is pruned as it was then, and has no fixed cut. Cut by cut it leads back to the first."""
    window = Window(task=1, cuts=(FIRST, SECOND), prune_stop=14, next_cut=20, prefetch_tokens=200)
    assert window.earlier == Window(task=1, cuts=(FIRST,), prune_stop=10)
    assert window.earlier.earlier == Window(task=1, prune_stop=4)
    assert window.earlier.earlier.earlier is None


def test_before_a_cut_all_is_removed_but_the_steps_that_it_keeps() -> None:
    """What was spared before the cut does not count any more: the cut lists what it keeps."""
    cut = structs.replace(SECOND, kept_steps=((4, 6), (8, 11)))
    window = Window(cuts=(FIRST, cut), prune_stop=18, spared=((6, 8), (14, 16)))
    assert [step for step in range(20) if not window.is_removed(step)] == [4, 8, 14, 18, 19]


def test_before_the_place_of_prune_all_is_removed_but_the_spared_steps() -> None:
    window = Window(task=1, prune_stop=9, spared=((2, 4), (6, 9)))
    assert [step for step in range(2, 11) if not window.is_removed(step)] == [2, 6, 9, 10]
    assert list(window.pruned) == [0, 1, 4, 5]
    assert not any(map(Window().is_removed, range(5)))


def test_what_is_pruned_lies_between_the_cut_and_the_place_of_prune() -> None:
    window = Window(cuts=(SECOND,), prune_stop=18, spared=((4, 6), (14, 16)))
    assert list(window.pruned) == [12, 13, 16, 17]
    assert list(Window(cuts=(SECOND,), prune_stop=10).pruned) == []


def test_images_stay_in_the_message_that_is_spared_and_in_the_task_statement() -> None:
    cut = structs.replace(SECOND, kept=(3, 8), spared=3)
    assert list(Window(task=13, cuts=(cut,), images=ImageStop(17, 15)).without_images) == [8, 12, 14, 16]


def test_a_task_statement_that_was_shortened_to_fit_has_reached_high_water() -> None:
    """What is left of it may be below. Another shortened message says nothing: it is noted when it comes."""
    window = Window(task=1, caps=(Cap(1, 300),))
    assert window.has_reached_high
    assert structs.replace(window, is_high=True, caps=()).has_reached_high
    assert not structs.replace(window, caps=(Cap(4, 300),)).has_reached_high


@pytest.mark.parametrize(
    ("window", "changes"),
    [
        (Window(task=1), False),
        (Window(task=1, next_cut=6, is_high=True), False),
        (Window(task=1, caps=(Cap(4, 300),)), False),
        (Window(task=1, caps=(Cap(1, 300),)), True),
        (Window(task=1, cuts=(FIRST,)), True),
        (Window(task=1, prune_stop=4), True),
        (Window(task=1, memory_stop=4), True),
        (Window(task=1, users_stop=4), True),
        (Window(task=1, images=ImageStop(17, 15)), True),
    ],
)
def test_what_an_earlier_request_has_sent_otherwise_is_known(window: Window, *, changes: bool) -> None:
    """A message that was shortened as the newest has been sent so from the start, unlike the task statement."""
    assert window.changes_sent is changes
    assert window.shortens is (changes or bool(window.caps))
