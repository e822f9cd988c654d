"""The history keeps the newest events."""

from proxy.state.history import kept
from proxy.state.history.event import Event


def make_event(name: str) -> Event:
    return Event(name, 1.0, 0.1, "chat", "POST", "/v1/chat/completions", 200, "unchanged")


def test_only_the_newest_events_stay(monkeypatch):
    monkeypatch.setattr(kept, "MAX_EVENTS", 3)
    history = kept.History()
    for number in range(5):
        history.add(make_event(str(number)))
    assert [event.request_id for event in history.events] == ["2", "3", "4"]
