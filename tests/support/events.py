"""Events of requests, for tests of what the dashboard keeps and shows."""

from functools import partial
from typing import Any

from trimtab.proxy.account.history.kept import History
from trimtab.proxy.account.history.table import Query, list_requests
from trimtab.proxy.account.outcome import Cut, Outcome, Window


async def read_events(past: History) -> list[Outcome]:
    """All events that are kept, oldest first."""
    found = await past.read(partial(list_requests, query=Query(100_000)))
    assert found is not None
    return [one.event for one in reversed(found[0])]


def make_event(name: str = "a", **fields: Any) -> Outcome:
    """The event of a request that was sent unchanged; `fields` replace its values."""
    values = {"at": 1000.0, "seconds": 0.1, "endpoint": "chat", "method": "POST", "path": "/v1/chat/completions"}
    return Outcome(name, **{**values, "status": 200, "outcome": "unchanged", **fields})


def make_window(at: int = 0, prune_stop: int = 0) -> Window:
    """A window with a cut at a message; 0 for none."""
    return Window(90, 50, prune_stop, (Cut("summarise", at, at + 5),) if at else ())
