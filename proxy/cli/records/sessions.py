"""Sessions for people, of `trimtab inspect --sessions` and `trimtab stats --by session`: as the dashboard lists them.

Law: one query for all three. Titles come from recorded bodies; what is kept by the proxy has none on disk.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table

from trimtab.proxy.account.history.sessions import ORDERS, Session, SessionQuery, list_sessions
from trimtab.proxy.account.history.table import Bounds, Row, add, open_in_memory
from trimtab.proxy.account.history.texts import Title, attach, keep_title
from trimtab.proxy.account.recordings.format import Recording
from trimtab.proxy.account.redact import Hidden
from trimtab.proxy.account.text import find_title
from trimtab.proxy.cli.tables import add_figures, make_console, print_fitting, safe, write_cost, write_short
from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.server.admin.shapes import shape_session
from trimtab.proxy.wire.codec import Counting, UndecodableError
from trimtab.proxy.wire.dialects import name_codec

NOTHING_HIDDEN = Hidden.of((), ())
"""A recording has its keys replaced already."""
TITLE_CHARS = 24
"""The least width of titles. Chosen: some words."""
_SORT_NAMES = ", ".join(ORDERS)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which sessions or requests are wanted."""
    for name, told in (
        ("model", "Only this model."),
        ("client", "Only the client with this name."),
        ("outcome", "Only with this outcome; of sessions, that of the newest request."),
        ("find", "Only sessions with these words in their title or names."),
    ):
        command = click.option(f"--{name}", help=told)(command)
    told = f"How sessions are sorted: {_SORT_NAMES}. With a minus in front, the other way round."
    return click.option("--sort", "order", help=told, metavar="COLUMN")(command)


def read_query(limit: int, asked: Mapping[str, str | None]) -> SessionQuery:
    """The query of the options. Raises click.BadParameter."""
    order = asked["order"] or "last"
    name = order.removeprefix("-")
    if name not in ORDERS:
        message = f"must be one of {_SORT_NAMES}, or one of them with a minus in front"
        raise click.BadParameter(message, param_hint="--sort")
    ascends = (name in {"session", "model", "client", "outcome"}) is not order.startswith("-")
    return SessionQuery(
        limit,
        words=asked["find"] or "",
        model=asked["model"],
        client=asked["client"],
        outcome=asked["outcome"],
        order=name,
        ascends=ascends,
    )


def find_recorded(recordings: Iterable[Recording], query: SessionQuery) -> tuple[list[Session], int]:
    """The sessions of recordings, oldest recording first, and how many there are."""
    connection = open_in_memory()
    attach(connection, ":memory:")
    rows, titled = [], set[str]()
    for one in recordings:
        event = one.event
        if one.call is None and event.session:
            rows.append(Row.of(event, 1))
            if event.session not in titled:
                titled.add(event.session)
                keep_title(connection, event.session, event.at, Title(read_title(one), ""))
    add(connection, rows, Bounds(len(rows), 1 << 40, ttl_seconds=float("inf")))
    return list_sessions(connection, query)


def read_title(recording: Recording) -> str:
    """The beginning of what the user said first; empty if the body is not recorded, or cannot be read."""
    told, body = recording.request, recording.received_body
    if told is None or body is None or not told.dialect:
        return ""
    try:
        codec = name_codec(told.dialect)
        messages = codec.decode(codec.read(body), Counting(len, make_known())).messages
    except (UndecodableError, KeyError, ValueError):
        return ""
    return find_title(messages, NOTHING_HIDDEN)


def show_sessions(found: Sequence[Session], total: int, *, as_json: bool, console: Console | None = None) -> None:
    if as_json:
        shaped = {"sessions": [shape_session(one) for one in found], "total": total}
        click.echo(orjson.dumps(shaped, option=orjson.OPT_INDENT_2))
        return
    console = console or make_console()
    if not found:
        console.print("no session is like that")
        return
    table = Table(box=None, pad_edge=False)
    titles = [safe(one.title or one.header) for one in found]
    has_titles = any(titles)  # else nobody has kept texts
    for name in ("session", *(["title"] if has_titles else []), "newest (UTC)", "model", "client", "outcome"):
        least_chars = TITLE_CHARS if name == "title" else None
        table.add_column(name, no_wrap=name not in {"title", "model"}, min_width=least_chars)
    add_figures(table, ("requests", "original", "sent", "cost", "saved"))
    for one, title in zip(found, titles, strict=True):
        last, cost = one.last, None if one.cost is None else one.cost + one.summary_cost
        saved = None if cost is None or one.without_cost is None else one.without_cost - cost
        table.add_row(
            safe(one.name),
            *([title] if has_titles else []),
            datetime.fromtimestamp(last.at, UTC).strftime("%m-%d %H:%M"),
            safe(last.model),
            safe(last.client),
            safe(last.outcome),
            f"{one.requests:,}",
            write_short(last.original_tokens),
            write_short(last.sent_tokens),
            *("-" if amount is None else write_cost(amount) for amount in (cost, saved)),
        )
    spare = ("client", "outcome", "original", "saved", "newest (UTC)", "sent", "cost", "requests", "model")
    print_fitting(console, table, spare)
    if total > len(found):
        console.print(f"{len(found):,} of {total:,} sessions; --limit shows more", highlight=False)
