"""The history keeps the newest events."""

import pytest
from support.events import make_event

from proxy.account.history import kept
from proxy.account.history.event import EventText
from proxy.account.history.kept import Bounds, History
from proxy.account.history.texts import pack_text


def names(history: History) -> list[str]:
    return [event.request_id for event in history.events]


def test_only_the_newest_events_stay(monkeypatch):
    monkeypatch.setattr(kept, "MAX_EVENTS", 3)
    history = History()
    for number in range(5):
        history.add(make_event(str(number)))
    assert names(history) == ["2", "3", "4"]
    assert history.find("1") is None
    assert history.find("2").turn.event.request_id == "2"


def test_only_so_many_bytes_are_kept():
    """Whatever the events hold."""
    history = History(bounds=Bounds(events_bytes=20_000))
    for number in range(100):
        history.add(make_event(str(number), reason="x" * 1000))
    assert 5 < len(history.events) < 20
    assert history._total_bytes <= 20_000
    assert names(history)[-1] == "99"
    assert len(history._by_id) == len(history.events)


def test_an_event_comes_back_as_it_was():
    history, event = History(), make_event(cost=7, original_sections=(1, 2, 3, 4, 5))
    history.add(event)
    assert history.events == (event,)


def test_erasing_a_session_leaves_the_others():
    """Its events and texts go; what is told by the minute stays."""
    history = History(keeps_text=True)
    for number, session in enumerate("abab"):
        history.add(make_event(str(number), session=session))
        history.texts.expect(str(number), session)
        history.texts.keep(str(number), pack_text(session, EventText(("told",))))
    assert history.erase("a")
    assert names(history) == ["1", "3"]
    assert [history.texts.find(str(number)) is None for number in range(4)] == [True, False, True, False]
    assert list(history.sessions.by_name) == ["b"]
    assert sum(bucket.requests for bucket in history.timeline.buckets.values()) == 4
    assert not history.erase("a")
    before = history._total_bytes
    assert history.erase("b", text_only=True)
    assert names(history) == ["1", "3"]
    assert history._total_bytes == before
    assert not history.texts.has("b")


@pytest.mark.parametrize("is_cleared", [False, True])
def test_what_is_switched_off_keeps_nothing(is_cleared):
    history = History(keeps_text=True)
    history.add(make_event(session="s"))
    history.texts.expect("a", "s")
    history.texts.keep("a", pack_text("s", EventText()))
    if is_cleared:
        history.clear()
        assert (names(history), history.sessions.by_name, history.timeline.buckets) == ([], {}, {})
    else:
        history.keep_text(keeps_text=False)
        assert names(history) == ["a"]
    assert not history.texts.has("s")


def test_a_history_says_whether_it_wants_texts():
    assert [History(keeps_text=wanted).keeps_text for wanted in (True, False)] == [True, False]
    assert not History().keeps_text
