"""The window's state as values."""

from rules.window.state import Cut, CutKind, Window

FIRST = Cut(CutKind.SUMMARISE, 6, 200, (), 360, prune_stop=4)
SECOND = Cut(CutKind.DIGEST, 12, 90, (8,), 290, prune_stop=10)


def test_without_a_cut_there_is_none_that_stands() -> None:
    """There is neither a cut nor an earlier window, whatever was pruned or fixed."""
    window = Window(task=1, prune_stop=4, next_cut=6, prefetch_tokens=200)
    assert window.cut is None
    assert window.earlier is None


def test_the_last_cut_stands() -> None:
    """Earlier cuts are part of what it covers."""
    assert Window(task=1, cuts=(FIRST, SECOND)).cut is SECOND


def test_the_earlier_window_is_what_the_cut_put_an_end_to() -> None:
    """It lacks the last cut, is pruned as it was then, and has no fixed cut. Cut by cut it leads back to the first."""
    window = Window(task=1, cuts=(FIRST, SECOND), prune_stop=14, next_cut=20, prefetch_tokens=200)
    assert window.earlier == Window(task=1, cuts=(FIRST,), prune_stop=10)
    assert window.earlier.earlier == Window(task=1, prune_stop=4)
    assert window.earlier.earlier.earlier is None
