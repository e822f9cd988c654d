"""Where the cut moved, and what that has cost."""

from support.events import make_event, make_window

from proxy.account.history.turn import Turn, follow, name_mark

BEFORE = make_event(original_tokens=10_000, sent_tokens=10_000)


def test_a_mark_names_the_newest_cut_and_the_prune_stop():
    marks = [
        name_mark(make_event(window=window)) for window in (None, make_window(), make_window(7, 3), make_window(7))
    ]
    assert marks == ["", "", "7/3", "7/0"]


def test_a_move_costs_what_was_not_kept_and_is_not_new():
    """6000 tokens were sent, a quarter of them kept; 500 of the client's tokens are new."""
    event = make_event(original_tokens=10_500, sent_tokens=6_000, prefix_kept=0.25)
    turn = follow(BEFORE, event, is_new_mark=True, cache_nanodollars=2.5)
    assert turn == Turn(event, cut_moved=True, cut_tokens=4_000, cut_cost=10_000)


def test_a_lost_prefix_never_costs_nothing():
    """A long new result is shortened: the client sent 9000 new tokens, and of the prompt only 4500 differ."""
    event = make_event(original_tokens=19_000, sent_tokens=6_000, prefix_kept=0.25)
    assert follow(BEFORE, event, is_new_mark=True, cache_nanodollars=2.5) == Turn(event, cut_moved=True)
    whole = make_event(original_tokens=10_500, sent_tokens=6_000, prefix_kept=1.0)
    assert follow(BEFORE, whole, is_new_mark=True, cache_nanodollars=2.5).cut_tokens == 0


def test_what_is_not_known_is_none():
    """After a restart the request before is not known; without prices the money is not."""
    event = make_event(original_tokens=10_500, sent_tokens=6_000, prefix_kept=0.25)
    assert follow(None, event, is_new_mark=True, cache_nanodollars=2.5) == Turn(event, cut_moved=True)
    assert follow(BEFORE, make_event(), is_new_mark=True, cache_nanodollars=2.5) == Turn(make_event(), cut_moved=True)
    assert follow(BEFORE, event, is_new_mark=True, cache_nanodollars=None).cut_cost is None
    assert follow(BEFORE, event, is_new_mark=False, cache_nanodollars=2.5) == Turn(event)
