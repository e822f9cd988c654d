"""Events of requests, for tests of what the dashboard keeps and shows."""

from typing import Any

from proxy.account.history.event import Event, EventCut, EventWindow


def make_event(name: str = "a", **fields: Any) -> Event:
    """The event of a request that was sent unchanged; `fields` replace its values."""
    values = {"at": 1000.0, "seconds": 0.1, "endpoint": "chat", "method": "POST", "path": "/v1/chat/completions"}
    return Event(name, **{**values, "status": 200, "outcome": "unchanged", **fields})


def make_window(at: int = 0, prune_stop: int = 0) -> EventWindow:
    """A window with a cut at a message; 0 for none."""
    return EventWindow(90, 50, prune_stop, (EventCut("summarise", at, at + 5),) if at else ())
