"""Events of requests, for tests of what the dashboard keeps and shows."""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any

from trimtab.proxy.account.history.kept import History
from trimtab.proxy.account.history.table import Query, list_requests
from trimtab.proxy.account.outcome import Cut, Outcome, Window
from trimtab.proxy.catalogue.prices import Bill, Tokens

ANSWERED = Bill(Tokens(), Tokens())
"""A bill without an amount: its request counts."""


def count_instructions(connection: sqlite3.Connection) -> Callable[[], int]:
    """A function that tells how many instructions SQLite has executed from now on, in whole hundreds."""
    hundreds = 0

    def count() -> int:
        nonlocal hundreds
        hundreds += 1
        return 0

    connection.set_progress_handler(count, 100)
    return lambda: 100 * hundreds


async def read_events(past: History) -> list[Outcome]:
    """All events that are kept, oldest first."""
    found = await past.read(partial(list_requests, query=Query(100_000)))
    return [one.event for one in reversed(found[0])]


def make_event(name: str = "a", **fields: Any) -> Outcome:
    """The event of a request that was sent unchanged, and answered; `fields` replace its values."""
    values = {"at": 1000.0, "seconds": 0.1, "endpoint": "chat", "method": "POST", "path": "/v1/chat/completions"}
    values |= {"status": 200, "outcome": "unchanged", "bill": ANSWERED, "has_prompt": True}
    return Outcome(name, **{**values, **fields})


def make_window(at: int = 0, prune_stop: int = 0) -> Window:
    """A window with a cut at a message; 0 for none."""
    return Window(90, 50, prune_stop, (Cut("summarise", at, at + 5),) if at else ())
