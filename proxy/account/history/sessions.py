"""The sessions of the table of events: which ones, in which order, and how many.

Law: bounded by the table. The names of columns are ours, and never those of a reader.
"""

import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from trimtab.proxy.account.history.table import find_previous
from trimtab.proxy.account.outcome import Outcome

ORDERS: Mapping[str, str] = {
    "session": "COALESCE(folded, session)",
    "first": "first_at",
    "last": "last_at",
    "model": "model",
    "client": "client",
    "outcome": "outcome",
    "requests": "requests",
    "original": "original_tokens",
    "sent": "sent_tokens",
    "moves": "cuts",
    "cost": "cost + summary_cost",
    "saved": "without_cost - cost - summary_cost",
}
"""What sessions are sorted by, and how SQL calls it."""
CHOICES = ("model", "client", "outcome")
MAX_CHOICES = 100  # Models, clients and outcomes to choose from. Chosen: a longer list is searched by words.
MAX_WORDS = 8  # Words that are searched for. Chosen: each is looked for in all sessions.
_WITH = """
WITH last AS (
  SELECT session, MAX(at) AS last_at, model, client, outcome, original_tokens, sent_tokens
  FROM events WHERE event IS NOT NULL AND session {chosen} GROUP BY session),
sums AS (
  SELECT session, MIN(at) FILTER (WHERE event IS NOT NULL) AS first_at, COUNT(event) AS requests,
    SUM(original_tokens - sent_tokens) AS saved, SUM(cost) AS cost, SUM(without_cost) AS without_cost,
    SUM(summary_cost) AS summary_cost, COUNT(DISTINCT NULLIF(mark, '')) AS cuts
  FROM events WHERE session {chosen} GROUP BY session)
"""
_FROM = " FROM last JOIN sums USING (session) LEFT JOIN private.titles USING (session)"
_FOUND = """
SELECT session, first_at, requests, saved, cost, without_cost, summary_cost, cuts,
  EXISTS (SELECT 1 FROM private.texts WHERE texts.session = last.session), COALESCE(title, ''), COALESCE(header, '')"""
_SEARCHED = "{}(session || ' ' || model || ' ' || client || ' ' || outcome) || ' ' || COALESCE(folded, '')"


class Session(msgspec.Struct, frozen=True):
    """A session: sums over its requests, and its newest one.

    saved_tokens: what was not sent; negative if tokens were added. cuts: different newest cuts that it had.
    cost, without_cost: in nanodollars, of the requests with a known price; None if there is none.
    summary_cost: the same of the calls for its summaries, which `cost` does not have.
    title: the beginning of the first user text, if texts are kept; else empty. header: what the client calls it.
    """

    name: str
    last: Outcome
    first_at: float
    requests: int
    saved_tokens: int
    cost: int | None
    without_cost: int | None
    summary_cost: int
    cuts: int
    has_text: bool
    title: str = ""
    header: str = ""


class SessionQuery(msgspec.Struct, frozen=True):
    """Which sessions are wanted; None for any. words: each is in the title, or in a name that is shown.

    since: of the newest request. order: a key of ORDERS; what is not known is last, in either direction.
    """

    limit: int = 1
    offset: int = 0
    name: str | None = None
    words: str = ""
    model: str | None = None
    client: str | None = None
    outcome: str | None = None
    since: float = 0.0
    order: str = "last"
    ascends: bool = False

    def write_conditions(self) -> Iterator[tuple[str, str | float]]:
        if self.since:
            yield "last_at >= ?", self.since
        for column in CHOICES:
            if (wanted := getattr(self, column)) is not None:
                yield f"{column} = ?", wanted
        for word in self.words.split()[:MAX_WORDS]:
            # SQLite's `lower` folds ASCII only. Our own takes its time, so only the words that need it use it.
            yield f"instr({_SEARCHED.format('lower' if word.isascii() else 'casefold')}, ?)", word.casefold()


def list_sessions(connection: sqlite3.Connection, query: SessionQuery) -> tuple[list[Session], int]:
    connection.create_function("casefold", 1, str.casefold, deterministic=True)
    conditions = list(query.write_conditions())
    wheres = f" WHERE {' AND '.join(condition for condition, _ in conditions)}" if conditions else ""
    start, values = _choose(query)
    values += [value for _, value in conditions]
    order, way = ORDERS[query.order], "ASC" if query.ascends else "DESC"
    ordered = f" ORDER BY {order} {way} NULLS LAST, last_at DESC, session LIMIT ? OFFSET ?"
    rows = connection.execute(f"{start}{_FOUND}{_FROM}{wheres}{ordered}", (*values, query.limit, query.offset))
    found: list[Session] = []
    for name, *rest in rows.fetchall():
        with suppress(msgspec.MsgspecError):
            if (last := find_previous(connection, name, math.inf, "")) is not None:
                found.append(Session(name, last, *rest))
    if len(found) < query.limit and not query.offset:
        return found, len(found)
    (total,) = connection.execute(f"{start}SELECT COUNT(*){_FROM}{wheres}", values).fetchone()
    return found, total


def find_named(connection: sqlite3.Connection, name: str, client: str | None = None) -> Session | None:
    return next(iter(list_sessions(connection, SessionQuery(name=name, client=client))[0]), None)


def list_choices(connection: sqlite3.Connection, client: str | None = None) -> dict[str, list[str]]:
    start, values = _choose(SessionQuery())
    own, values = ("", values) if client is None else (" WHERE client = ?", [*values, client])
    rows = connection.execute(f"{start}SELECT DISTINCT model, client, outcome FROM last{own}", values).fetchall()  # noqa: S608 - our own names
    return {name: sorted({row[at] for row in rows} - {""})[:MAX_CHOICES] for at, name in enumerate(CHOICES)}


def _choose(query: SessionQuery) -> tuple[str, list[Any]]:
    if query.name is None:
        return _WITH.format(chosen="!= ''"), []
    return _WITH.format(chosen="= ?"), [query.name, query.name]
