"""The table of events, and what its readers ask: a row for each request, and for each summary that was paid for.

Law: each function is one transaction, or reads only, on a connection that its own thread holds. Bounded by rows, bytes
and age. A row that cannot be read is left out.

What belongs to the user's machine and never to the store (texts, and what was erased) is in the attached database
`private`; see texts.py.
"""

import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import add as add_up
from typing import Any, NamedTuple

import msgspec

from trimtab.proxy.account.outcome import Outcome, pick_kept
from trimtab.proxy.store.sqlite import FileForm, writing

MAX_EVENTS = 10_000  # Rows for each worker. Chosen: an hour of a busy team.
ROW_BYTES = 500  # What a row takes beside its event. Chosen: its columns, and its places in the indexes, generously.
STEP_SECONDS = 60  # Chosen: fine enough to see one request of an agent
KEPT_STEPS = 24 * 60  # Source: the promise of a day
MAX_NAMES = 8  # Models, and clients, of one minute; the rest is `other`. Chosen: bounds the table of minutes.
OTHER = "other"
ERASED_SECONDS = 3600.0  # For so long, erased rows cannot come back. Chosen: longer than anything waits to be written.
FIGURES = (
    "requests",
    "original_tokens",
    "sent_tokens",
    "cached_tokens",
    "fail_opens",
    "failed",
    "priced",
    "cost",
    "without_cost",
)
"""What is summed up by the minute. `priced`: requests and summaries with a known price; money is in nanodollars."""
FORM = FileForm(
    0x7472696F,  # the letters `trio`: the number after that of the statistics' file
    2,
    f"""
CREATE TABLE events (seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, request_id TEXT NOT NULL,
  session TEXT NOT NULL, mark TEXT NOT NULL, outcome TEXT NOT NULL, label TEXT NOT NULL, model TEXT NOT NULL,
  client TEXT NOT NULL, worker INTEGER NOT NULL, original_tokens INTEGER NOT NULL, sent_tokens INTEGER NOT NULL,
  cached_tokens INTEGER NOT NULL, failed INTEGER NOT NULL, cost INTEGER, without_cost INTEGER,
  summary_cost INTEGER NOT NULL, cache_price REAL, event BLOB, entry TEXT, end_bytes INTEGER NOT NULL);
CREATE INDEX events_by_time ON events (at, request_id);
CREATE UNIQUE INDEX events_by_id ON events (request_id) WHERE event IS NOT NULL;
CREATE INDEX events_by_session ON events (session, at);
CREATE INDEX events_by_mark ON events (session, mark, at);
CREATE TABLE minutes (minute INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
  {", ".join(f"{name} INTEGER NOT NULL" for name in FIGURES)}, PRIMARY KEY (minute, kind, name)) WITHOUT ROWID;
CREATE TABLE position (entry TEXT NOT NULL)
""",
)
MOST = 1 << 48  # A larger figure is cut, so that sums fit. Chosen: no prompt has so many tokens, or costs so much.
_decoder = msgspec.json.Decoder(Outcome)


class Row(NamedTuple):
    """A request, or what a summary cost, without an `event`. mark: the newest cut and the prune stop.

    cache_price: what a token costs more if the prompt cache does not have it, in nanodollars. entry: its id in the log
    of the replicas.
    """

    at: float
    request_id: str
    session: str
    mark: str
    outcome: str
    label: str
    model: str
    client: str
    worker: int
    original_tokens: int
    sent_tokens: int
    cached_tokens: int
    failed: int
    cost: int | None
    without_cost: int | None
    summary_cost: int
    cache_price: float | None
    event: str | None
    entry: str | None = None

    @classmethod
    def of(cls, event: Outcome, worker: int) -> "Row":
        is_priced = event.cost is not None and event.without_cost is not None
        original_tokens, sent_tokens = event.counted or (0, 0)
        return cls(
            event.at,
            event.request_id,
            event.session,
            name_mark(event),
            event.outcome,
            event.label,
            event.model,
            event.client,
            worker,
            min(original_tokens, MOST),
            min(sent_tokens, MOST),
            min(event.cached_tokens or 0, MOST),
            int(event.has_failed),
            min(event.cost or 0, MOST) if is_priced else None,
            min(event.without_cost or 0, MOST) if is_priced else None,
            0,
            event.cache_price,
            msgspec.json.encode(pick_kept(event)).decode(),
        )

    @classmethod
    def of_summary(cls, at: float, cost: int, label: str, client: str, session: str, worker: int) -> "Row":
        return cls(at, "", session, "", "", label, "", client, worker, 0, 0, 0, 0, None, None, cost, None, None)

    def measure(self) -> list[int]:
        if self.event is None:
            return [0, 0, 0, 0, 0, 0, 1, self.summary_cost, 0]
        is_priced, is_open = self.cost is not None, self.outcome == "failed_open"
        tokens = self.original_tokens, self.sent_tokens, self.cached_tokens
        return [1, *tokens, is_open, self.failed, is_priced, self.cost or 0, self.without_cost or 0]


class Erased(NamedTuple):
    session: str
    at: float
    text_only: bool


class Entry(NamedTuple):
    """An entry of the replicas' log; without an item if it cannot be read."""

    name: str
    item: Row | Erased | None


_COLUMNS = ", ".join((*Row._fields, "end_bytes"))
_INSERT = f"INSERT OR IGNORE INTO events ({_COLUMNS}) VALUES ({', '.join('?' * (len(Row._fields) + 1))})"  # noqa: S608 - our own names
_FIND_SUMMARY = "SELECT 1 FROM events WHERE session = ? AND at = ? AND summary_cost = ? AND event IS NULL"
_ADD_MINUTE = (
    f"INSERT INTO minutes (minute, kind, name, {', '.join(FIGURES)}) VALUES ({', '.join('?' * (3 + len(FIGURES)))})"  # noqa: S608 - our own names
    f" ON CONFLICT DO UPDATE SET {', '.join(f'{name} = {name} + excluded.{name}' for name in FIGURES)}"
)


class Bounds(msgspec.Struct, frozen=True):
    """What the table may hold. `text_bytes`: half of it for kept texts, half for those that wait to be written."""

    events: int = MAX_EVENTS
    events_bytes: int = 8 * 1024 * 1024
    text_bytes: int = 64 * 1024 * 1024
    ttl_seconds: float = 7 * 24 * 3600.0


def open_in_memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for statement in FORM.tables.split(";"):
        connection.execute(statement)
    return connection


def add(connection: sqlite3.Connection, rows: Sequence[Row], bounds: Bounds) -> None:
    """Add rows, and drop what is beyond the bounds."""
    with writing(connection):
        _add(connection, rows, bounds, None)


def _add(connection: sqlite3.Connection, rows: Sequence[Row], bounds: Bounds, position: str | None) -> None:
    """position: of the newest entry, if rows are of the replicas' log. Those that another worker added are left out."""
    if position is not None:
        known = _order(read_position(connection))
        if _order(position) <= known:
            return
        rows = [row for row in rows if _order(row.entry or "") > known]
        connection.execute("DELETE FROM position")
        connection.execute("INSERT INTO position (entry) VALUES (?)", (position,))
    erased = dict(connection.execute("SELECT session, at FROM private.erased WHERE NOT text_only").fetchall())
    newest = connection.execute("SELECT end_bytes FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    end_bytes, counted = newest[0] if newest else 0, []
    for row in rows:
        if row.at > erased.get(row.session, -1.0):
            end_bytes += ROW_BYTES + len(row.event or "")
            # Who got no answer in time writes again.
            summary = None if row.event is not None else (row.session, row.at, row.summary_cost)
            if summary and connection.execute(_FIND_SUMMARY, summary).fetchone():
                continue
            if not connection.execute(_INSERT, (*row, end_bytes)).rowcount:
                continue
        counted.append(row)
    connection.executemany(_ADD_MINUTE, _sum_minutes(connection, counted))
    _trim(connection, bounds, end_bytes)


def copy(connection: sqlite3.Connection, entries: Sequence[Entry], bounds: Bounds) -> None:
    rows = [entry.item for entry in entries if isinstance(entry.item, Row)]
    with writing(connection):  # else an order could be passed over
        _add(connection, rows, bounds, entries[-1].name)
        for entry in entries:
            if isinstance(entry.item, Erased):
                _erase(connection, entry.item)


def _sum_minutes(connection: sqlite3.Connection, rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """What some rows add to the sums of their minutes: to the whole, to each model, and to each client with a name."""
    sums: dict[tuple[int, str, str], list[int]] = {}
    names: dict[tuple[int, str], set[str]] = {}
    for row in rows:
        figures = row.measure()
        minute = int(row.at // STEP_SECONDS)
        for kind, name in (("", ""), ("models", row.label), ("clients", row.client)):
            if kind == "clients" and not name:
                continue
            if (minute, kind) not in names:
                found = connection.execute("SELECT name FROM minutes WHERE minute = ? AND kind = ?", (minute, kind))
                names[minute, kind] = {each for (each,) in found}
            known = names[minute, kind]
            told = name if name in known or len(known) < MAX_NAMES else OTHER
            known.add(told)
            before = sums.get((minute, kind, told))
            sums[minute, kind, told] = figures if before is None else [*map(add_up, before, figures)]
    return [(*place, *figures) for place, figures in sums.items()]


def _trim(connection: sqlite3.Connection, bounds: Bounds, end_bytes: int) -> None:
    """Drop the oldest rows. Ages count from the newest row, or from now if its clock is ahead."""
    last_seq, last_at = connection.execute("SELECT MAX(seq), MAX(at) FROM events").fetchone()
    if last_seq is None:
        return
    connection.execute("DELETE FROM events WHERE seq <= ?", (last_seq - bounds.events,))
    newest_at = min(last_at, time.time())
    connection.execute("DELETE FROM events WHERE at < ?", (newest_at - bounds.ttl_seconds,))
    connection.execute(
        "DELETE FROM events WHERE seq < (SELECT seq FROM events WHERE end_bytes > ? ORDER BY seq LIMIT 1)",
        (end_bytes - bounds.events_bytes,),
    )
    connection.execute("DELETE FROM minutes WHERE minute <= ?", (newest_at // STEP_SECONDS - KEPT_STEPS,))


def read_position(connection: sqlite3.Connection) -> str:
    row: tuple[str] | None = connection.execute("SELECT entry FROM position").fetchone()
    return row[0] if row else ""


def _order(entry: str) -> tuple[int, int]:
    at, _, number = entry.partition("-")
    return int(at or 0), int(number or 0)


class Query(msgspec.Struct, frozen=True):
    """Which requests are wanted; None for any. `before`: those before this request, by its id."""

    limit: int
    before: str | None = None
    session: str | None = None
    outcome: str | None = None
    model: str | None = None
    client: str | None = None


class Turn(msgspec.Struct, frozen=True):
    """A request and its place in the session. What is not known is None.

    sentences: what was done, if its text is kept.
    cut_moved: no earlier request of the session had this newest cut and this prune stop.
    cut_tokens: forwarded tokens that the move made different from the previous prompt.
        0 only if the whole previous prompt is still a prefix.
    cut_cost: what it cost that they were not read from the prompt cache, in nanodollars.
    cut_from_tokens: about what would have been forwarded without the move; None if it is not known.
    """

    event: Outcome
    worker: int = 1
    sentences: Sequence[str] | None = None
    cut_moved: bool = False
    cut_tokens: int | None = None
    cut_cost: int | None = None
    cut_from_tokens: int | None = None


_READ = """
SELECT at, request_id, events.session, mark, worker, cache_price, event, sentences
FROM events LEFT JOIN private.texts USING (request_id)
WHERE event IS NOT NULL"""
_FIND_MARK = "SELECT 1 FROM events WHERE session = ? AND mark = ? AND (at, request_id) < (?, ?) LIMIT 1"


def list_requests(connection: sqlite3.Connection, query: Query) -> tuple[list[Turn], bool] | None:
    wheres, values = [], list[Any]()
    if query.before is not None:
        place = "SELECT at, request_id FROM events WHERE request_id = ? AND event IS NOT NULL"
        before = connection.execute(place, (query.before,)).fetchone()
        if before is None:
            return None
        wheres.append(" AND (at, request_id) < (?, ?)")
        values += before
    for name, wanted in (("session", query.session), ("outcome", query.outcome), ("client", query.client)):
        if wanted is not None:
            wheres.append(f" AND events.{name} = ?")
            values.append(wanted)
    if query.model is not None:
        wheres.append(" AND ? IN (model, label)")
        values.append(query.model)
    order = " ORDER BY at DESC, request_id DESC LIMIT ?"
    rows = connection.execute("".join((_READ, *wheres, order)), (*values, query.limit + 1)).fetchall()
    return _list(connection, rows[: query.limit]), len(rows) > query.limit


def find_request(connection: sqlite3.Connection, request_id: str) -> Turn | None:
    rows = connection.execute(f"{_READ} AND request_id = ? ORDER BY at DESC LIMIT 1", (request_id,)).fetchall()
    return next(iter(_list(connection, rows)), None)


def list_after(connection: sqlite3.Connection, seq: int, most: int) -> tuple[list[Turn], int, bool]:
    """The requests after a row, oldest first, none if more than `most`; the newest row; whether these are not all."""
    (last_seq,) = connection.execute("SELECT COALESCE(MAX(seq), 0) FROM events").fetchone()
    chosen = f"{_READ} AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"  # another worker may add rows meanwhile
    rows = connection.execute(chosen, (seq, last_seq, most + 1)).fetchall()
    return ([], last_seq, True) if len(rows) > most else (_list(connection, rows), last_seq, False)


def _list(connection: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]) -> list[Turn]:
    listed = []
    for at, request_id, session, mark, worker, cache_price, encoded, sentences in rows:
        with suppress(msgspec.MsgspecError, TypeError, ValueError):  # a row of another version, or a damaged one
            event, told = _decoder.decode(encoded), None if sentences is None else msgspec.json.decode(sentences)
            place = session, mark, at, request_id
            is_moved = bool(mark and session) and connection.execute(_FIND_MARK, place).fetchone() is None
            previous = find_previous(connection, session, at, request_id) if is_moved else None
            tokens = None if previous is None else measure_move(previous, event)
            cost = None if tokens is None or cache_price is None else round(tokens * cache_price)
            would_be = find_uncut_size(previous, event) if is_moved else None
            listed.append(Turn(event, worker, told, is_moved, tokens, cost, would_be))
    return listed


def name_mark(event: Outcome) -> str:
    """The newest cut and the prune stop of a request, as one text; empty if nothing is cut."""
    window = event.window
    if window is None or not (window.cuts or window.prune_stop):
        return ""
    return f"{window.cuts[-1].at if window.cuts else 0}/{window.prune_stop}"


def measure_move(previous: Outcome, event: Outcome) -> int | None:
    """The forwarded tokens that a move of the cut made different from the previous prompt; None if not known."""
    if event.prefix_kept is None:
        return None
    changed_tokens = round(event.sent_tokens * (1 - event.prefix_kept))
    # New messages are no part of the move. Their size is that of the client's own messages, so this is an estimate.
    tokens = changed_tokens - max(event.original_tokens - previous.original_tokens, 0)
    # If new results were shortened, more is new by this estimate than was sent.
    return None if tokens <= 0 < changed_tokens else max(tokens, 0)


def find_uncut_size(previous: Outcome | None, event: Outcome) -> int | None:
    """About what a request would have forwarded if its cut had not moved; None if it is not known."""
    if previous is None:
        return event.original_tokens or None
    new_tokens = max(event.original_tokens - previous.original_tokens, 0)
    return previous.sent_tokens + new_tokens if previous.sent_tokens else None


def find_previous(connection: sqlite3.Connection, session: str, at: float, request_id: str) -> Outcome | None:
    row = connection.execute(
        "SELECT event FROM events WHERE session = ? AND (at, request_id) < (?, ?) AND event IS NOT NULL"
        " ORDER BY at DESC, request_id DESC LIMIT 1",
        (session, at, request_id),
    ).fetchone()
    return None if row is None else _decoder.decode(row[0])


def sum_steps(
    connection: sqlite3.Connection, start: int, stop: int, step_seconds: int
) -> list[tuple[int, str, str, list[int]]]:
    """The sums of FIGURES by step, kind and name, from one time to another. All are multiples of STEP_SECONDS."""
    sums = ", ".join(f"SUM({name})" for name in FIGURES)
    rows = connection.execute(
        f"SELECT minute * :minute / :step * :step AS at, kind, name, {sums} FROM minutes"  # noqa: S608 - our own names
        " WHERE minute >= :start / :minute AND minute < :stop / :minute GROUP BY 1, kind, name",
        {"minute": STEP_SECONDS, "step": step_seconds, "start": start, "stop": stop},
    )
    return [(at, kind, name, list(figures)) for at, kind, name, *figures in rows]


def erase(connection: sqlite3.Connection, order: Erased) -> None:
    """Erase what a session had, or its texts only. It does not come back. Sums of minutes stay."""
    with writing(connection):
        _erase(connection, order)


def find_session(connection: sqlite3.Connection, session: str, at: float) -> tuple[bool, list[str]]:
    """Whether anything is known of a session up to a time, and its entries in the replicas' log."""
    known = connection.execute("SELECT entry FROM events WHERE session = ? AND at <= ?", (session, at)).fetchall()
    text = connection.execute("SELECT 1 FROM private.texts WHERE session = ? LIMIT 1", (session,)).fetchone()
    return bool(known or text), [entry for (entry,) in known if entry]


def _erase(connection: sqlite3.Connection, order: Erased) -> None:
    session, at, text_only = order
    connection.execute("DELETE FROM private.texts WHERE session = ?", (session,))
    connection.execute("DELETE FROM private.titles WHERE session = ?", (session,))
    connection.execute("DELETE FROM private.erased WHERE at < ?", (at - ERASED_SECONDS,))
    connection.execute("INSERT OR REPLACE INTO private.erased VALUES (?, ?, ?)", (session, text_only, at))
    if not text_only:
        connection.execute("DELETE FROM events WHERE session = ? AND at <= ?", (session, at))


def clear(connection: sqlite3.Connection) -> None:
    with connection:
        # Without its position, a log is copied from its beginning again.
        for table in ("events", "minutes", "position", "private.texts", "private.titles"):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
