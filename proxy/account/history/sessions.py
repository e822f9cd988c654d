"""The sessions that were seen lately, each with the sums over its requests.

Law: bounded. The sessions that were silent longest are dropped first.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from proxy.account.history.event import Event
from proxy.account.history.turn import Turn, follow, name_mark

MAX_SESSIONS = 1000
"""Chosen: a busy day of a team; some 3 MB."""
MAX_MARKS = 64
"""Cuts of a session that are remembered. Chosen: a session of a million tokens has some thirty."""


@dataclass(slots=True)
class SessionSums:
    """One session.

    last: its newest request.
    marks: when each cut was first seen, by its mark (turn.py); the oldest first.
    saved_tokens: sum over its requests of what was not sent; negative if tokens were added.
    cost, without_cost: in nanodollars, of the requests whose price is known; None if there is none.
    summary_cost: the same of the calls for its summaries, which `cost` does not have.
    """

    first_at: float
    last: Event
    requests: int = 0
    saved_tokens: int = 0
    cost: int | None = None
    without_cost: int | None = None
    summary_cost: int = 0
    marks: dict[str, float] = field(default_factory=dict)


class Sessions:
    """The sessions of this process by name, the one with the newest request last."""

    def __init__(self) -> None:
        self.by_name: OrderedDict[str, SessionSums] = OrderedDict()
        self._early: OrderedDict[str, int] = OrderedDict()
        """What summaries cost that were written while the first request of their session waited for them."""

    def add(self, event: Event, cache_nanodollars: float | None) -> Turn:
        """Add a request to its session, and return it as a turn. `cache_nanodollars`: see turn.py."""
        if not event.session:
            return Turn(event)
        session = self.by_name.get(event.session)
        previous = None if session is None else session.last
        if session is None:
            session = self.by_name[event.session] = SessionSums(event.at, event)
            session.summary_cost = self._early.pop(event.session, 0)
            if len(self.by_name) > MAX_SESSIONS:
                self.by_name.popitem(last=False)
        else:
            self.by_name.move_to_end(event.session)
        mark = name_mark(event)
        is_new_mark = bool(mark) and mark not in session.marks
        if is_new_mark:
            session.marks[mark] = event.at
            if len(session.marks) > MAX_MARKS:
                del session.marks[next(iter(session.marks))]
        _add(session, event)
        return follow(previous, event, is_new_mark=is_new_mark, cache_nanodollars=cache_nanodollars)

    def add_summary(self, name: str, cost: int) -> None:
        """Add what a call for a summary of a session cost, in nanodollars."""
        session = self.by_name.get(name)
        if session is not None:
            session.summary_cost += cost
            return
        self._early[name] = self._early.get(name, 0) + cost
        if len(self._early) > MAX_SESSIONS:
            self._early.popitem(last=False)

    def erase(self, name: str) -> None:
        """Forget a session."""
        self.by_name.pop(name, None)
        self._early.pop(name, None)

    def clear(self) -> None:
        """Forget all sessions."""
        self.by_name.clear()
        self._early.clear()


def _add(session: SessionSums, event: Event) -> None:
    session.last = event
    session.requests += 1
    if event.sent_tokens:
        session.saved_tokens += event.original_tokens - event.sent_tokens
    if event.cost is not None and event.without_cost is not None:
        session.cost = (session.cost or 0) + event.cost
        session.without_cost = (session.without_cost or 0) + event.without_cost
