"""Sums over the requests of a session."""

from support.events import make_event, make_window

from proxy.account.history import sessions
from proxy.account.history.sessions import Sessions


def test_a_session_adds_up_its_requests():
    found = Sessions()
    found.add(make_event(session="s", at=1.0, original_tokens=10, sent_tokens=10), None)
    found.add(make_event(session="s", at=2.0, original_tokens=30, sent_tokens=12, cost=5, without_cost=9), None)
    found.add(make_event(session="s", at=3.0, original_tokens=40), None)  # refused: nothing was sent
    session = found.by_name["s"]
    assert (session.first_at, session.last.at, session.requests) == (1.0, 3.0, 3)
    assert (session.saved_tokens, session.cost, session.without_cost) == (18, 5, 9)


def test_a_summary_may_be_written_before_the_first_request_of_its_session_ends(monkeypatch):
    """Bounded, if that request never ends. What is erased does not come back."""
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
    found = Sessions()
    found.add_summary("s", 3)
    found.add(make_event(session="s"), None)
    found.add_summary("s", 4)
    assert found.by_name["s"].summary_cost == 7
    for name in "abc":
        found.add_summary(name, 1)
    found.erase("b")
    found.erase("s")
    for name in "sabc":
        found.add(make_event(session=name), None)
        assert found.by_name[name].summary_cost == (name == "c")
    found.add_summary("d", 1)
    found.clear()
    found.add(make_event(session="d"), None)
    assert found.by_name["d"].summary_cost == 0


def test_a_cut_moves_once_although_the_client_goes_back():
    """A branch that has an older cut again moves nothing."""
    found = Sessions()
    windows = [None, make_window(7), make_window(7), make_window(7, 9), make_window(20), make_window(7)]
    moved = [found.add(make_event(session="s", window=window), None).cut_moved for window in windows]
    assert moved == [False, True, False, True, True, False]


def test_the_session_that_was_silent_longest_is_dropped(monkeypatch):
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
    found = Sessions()
    for name in ("a", "b", "a", "c", ""):
        found.add(make_event(session=name), None)
    assert list(found.by_name) == ["a", "c"]


def test_only_so_many_cuts_are_remembered(monkeypatch):
    monkeypatch.setattr(sessions, "MAX_MARKS", 3)
    found = Sessions()
    for at in range(1, 9):
        found.add(make_event(session="s", window=make_window(at)), None)
    assert list(found.by_name["s"].marks) == ["6/0", "7/0", "8/0"]
