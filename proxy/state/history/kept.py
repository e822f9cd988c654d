"""Keeps the newest events of this process.

Law: bounded. It is told what happened, and changes nothing.
"""

from collections import deque

from proxy.state.history.event import Event

MAX_EVENTS = 10_000
"""Chosen: an hour of a busy team; some 20 MB."""


class History:
    """The newest events of this process, oldest first. `keeps_text`: whether it also wants the text of requests."""

    def __init__(self, *, keeps_text: bool = False) -> None:
        self.keeps_text = keeps_text
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)

    def add(self, event: Event) -> None:
        """Keep an event."""
        self._events.append(event)

    @property
    def events(self) -> tuple[Event, ...]:
        """All kept events, oldest first."""
        return tuple(self._events)
