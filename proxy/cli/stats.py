"""`trimtab stats`: what requests have cost, and what they would have cost without trimtab; sessions, as a table.

Law: sessions are those of the dashboard, found by the same query.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
import orjson
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from trimtab.proxy.account.books import KEPT_DAYS, Rows, Sums, go_back, name_day
from trimtab.proxy.account.books_stores import open_statistics
from trimtab.proxy.account.history.sessions import ORDERS, Session, SessionQuery, list_sessions
from trimtab.proxy.catalogue.prices import NANODOLLARS
from trimtab.proxy.cli.options import StoppedError, takes_config, wrong_use
from trimtab.proxy.cli.tables import add_figures, make_console, print_fitting, safe, write_cost, write_short
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.schema import Config
from trimtab.proxy.server.admin.opening import open_history
from trimtab.proxy.server.admin.shapes import shape_session
from trimtab.proxy.store.store import StoreError
from trimtab.proxy.telemetry.logs import configure_log, get_log
from trimtab.proxy.telemetry.savings import count

GROUPS = ("model", "client", "day", "session")
ALLOWED = "a number of days, hours or weeks (7d, 24h, 2w), or a date (2026-01-31)"
_PERIOD = re.compile(r"([1-9][0-9]{0,3})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}  # source: a day has 24 hours, a week seven days
HOURS_PER_DAY = 24  # source: a day has 24 hours
COLUMNS = ("answered", "original", "sent", "cached", "completion", "cost", "without", "saved", "share")
"""The columns after the name. The tokens are those of the model."""
SPARE = ("completion", "share", "cached", "without", "original", "sent", "requests", "cost")
"""Columns that a narrow terminal does without, the least important first."""
TITLE_CHARS = 24  # the least width of titles. Chosen: some words.
_SORT_NAMES = ", ".join(ORDERS)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
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


@click.command()
@click.option("--since", default="7d", show_default=True, metavar="PERIOD", help=f"Period to show: {ALLOWED}.")
@click.option("--by", type=click.Choice(GROUPS), default="model", show_default=True, help="Name of each line.")
@filter_options
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Sessions in the table.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON. Money is in US dollars.")
@takes_config
def stats(
    *,
    since: str,
    by: str,
    limit: int,
    as_json: bool,
    config_path: Path | None,
    settings: tuple[str, ...],
    **asked: str | None,
) -> None:
    """Show what requests have cost, and what trimtab has saved.

    The figures come from the store, so give the same --config and --set as to `serve`. The proxy may be running; it
    writes its figures every few seconds. Days are in UTC. A loss is shown as a loss. Sessions are those that the
    dashboard keeps; --outcome, --find and --sort are for them only.
    """
    if by != "session" and (asked["order"] or asked["find"] or asked["outcome"]):
        raise click.UsageError("--sort, --find and --outcome are for --by session")
    with wrong_use():
        config = load_file(config_path, settings)
        try:
            if by == "session":
                query = read_query(limit, asked)
                first = date.fromisoformat(find_first_day(since, name_day(time.time())))
                query = replace(query, since=datetime(first.year, first.month, first.day, tzinfo=UTC).timestamp())
                show_sessions(*asyncio.run(_read_sessions(config, query)), as_json=as_json)
                return
            reading = read_statistics(config, since, by, model=asked["model"], client=asked["client"])
            statistics = asyncio.run(reading)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--since") from None
    if as_json:
        click.echo(orjson.dumps(describe(statistics), option=orjson.OPT_INDENT_2))
        return
    print_table(statistics)


async def _read_sessions(config: Config, query: SessionQuery) -> tuple[list[Session], int]:
    with _reading(config):
        history = open_history(config, log=get_log())
        try:
            return await history.read(partial(list_sessions, query=query))
        finally:
            await history.close()


@contextmanager
def _reading(config: Config) -> Iterator[None]:
    """A block that reads the store. Raises StoppedError if that fails, or if only the running proxy can read it."""
    if config.store == "memory":
        message = "store: memory keeps nothing that another process can read; see /metrics of the running proxy"
        raise StoppedError(message)
    configure_log("error")
    try:
        yield
    except StoreError as error:
        raise StoppedError(f"{error}; trimtab doctor says more") from error


class Statistics(msgspec.Struct, frozen=True):
    first_day: str
    last_day: str
    by: str
    groups: tuple[tuple[str, Sums], ...]
    total: Sums


async def read_statistics(
    config: Config,
    since: str,
    by: str,
    clock: Callable[[], float] = time.time,
    *,
    model: str | None = None,
    client: str | None = None,
) -> Statistics:
    """The sums since a time, or those of one model or client. Raises ValueError, StoppedError, ConfigError."""
    today = name_day(clock())
    first_day = find_first_day(since, today)
    with _reading(config):
        store = open_statistics(config, get_log())
        rows = await store.read(first_day, today)
        await store.close()
    rows = {at: sums for at, sums in rows.items() if model in {None, at.model} and client in {None, at.client}}
    return gather(rows, first_day, today, by)


def gather(rows: Rows, first_day: str, last_day: str, by: str) -> Statistics:
    """Add up sums by model, client or day: days in order, others by what they have cost."""
    groups: dict[str, Sums] = {}
    for place, sums in rows.items():
        name = getattr(place, by)
        groups[name] = groups.get(name, Sums()) + sums
    ordered = sorted(groups.items())
    if by != "day":
        ordered.sort(key=lambda group: (-group[1].cost_nanodollars, -group[1].requests))
    return Statistics(first_day, last_day, by, tuple(ordered), sum(rows.values(), Sums()))


def describe(statistics: Statistics) -> dict[str, Any]:
    by = statistics.by
    return {
        "since": statistics.first_day,
        "until": statistics.last_day,
        "by": by,
        "rows": [{by: name, **_describe_sums(sums)} for name, sums in statistics.groups],
        "total": _describe_sums(statistics.total),
    }


def _describe_sums(sums: Sums) -> dict[str, int | float | None]:
    """The sums; money is null if no price of any request is known, and that of summaries if none of theirs is."""
    figures = sums.to_dict()
    figures |= {"cost_nanodollars": sums.cost_nanodollars, "saved_nanodollars": sums.saved_nanodollars}
    counts = {name: amount for name, amount in figures.items() if not name.endswith("_nanodollars")}
    told: dict[str, float | None] = {
        name.replace("nanodollars", "usd"): None if sums.is_unpriced else figures[name] / NANODOLLARS
        for name in figures
        if name not in counts
    }
    is_unpriced = 0 < sums.summaries == sums.unpriced_summaries
    told["summary_usd"] = None if is_unpriced else sums.summary_nanodollars / NANODOLLARS
    return counts | told


def find_first_day(since: str, today: str) -> str:
    """The first day of a period that ends today, rounded up to whole days in UTC. Raises ValueError: what is wrong."""
    period = _PERIOD.fullmatch(since.strip().lower())
    if period is not None:
        hours = int(period[1]) * _HOURS[period[2]]
        return go_back(today, min((hours - 1) // HOURS_PER_DAY, KEPT_DAYS))
    try:
        day = date.fromisoformat(since.strip()).isoformat()
    except ValueError:
        raise ValueError(ALLOWED) from None
    if day > today:
        raise ValueError(f"{day} is in the future: today is {today} in UTC")
    return max(day, go_back(today, KEPT_DAYS))


def print_table(statistics: Statistics, console: Console | None = None) -> None:
    console = console or make_console()
    total = statistics.total
    if not total.requests and not total.summaries:
        console.print(f"no answered requests from {statistics.first_day} to {statistics.last_day}", highlight=True)
        return
    table = Table(title=f"{statistics.first_day} to {statistics.last_day} (UTC)", title_justify="left")
    table.add_column(statistics.by)
    add_figures(table, COLUMNS)
    for name, sums in statistics.groups:
        table.add_row(safe(name), *_write_row(sums))
    table.add_section()
    table.add_row("total", *_write_row(total))
    print_fitting(console, table, SPARE)
    for line in _list_gaps(total):
        console.print(line, highlight=False, markup=False)


def _write_row(sums: Sums) -> list[str]:
    counts = (sums.requests, sums.original_tokens, sums.sent_tokens, sums.cached_tokens, sums.completion_tokens)
    cost, without, saved = sums.cost_nanodollars, sums.without_nanodollars, sums.saved_nanodollars
    lacks = sums.unpriced_requests + sums.unpriced_summaries
    told = [write_short(count) for count in counts]
    if sums.is_unpriced:  # nothing is known of their cost, which is not nothing
        return [*told, *["-"] * 4]
    shown = write_cost(saved)
    return [
        *told,
        write_cost(cost) + ("*" if lacks else ""),
        write_cost(without),
        f"[red]{shown}[/red]" if saved < 0 else shown,
        f"{cost / without:.3f}" if without else "-",
    ]


def _list_gaps(total: Sums) -> list[str]:
    lines = []
    if total.is_unpriced and not total.summaries - total.unpriced_summaries:
        lines.append("- means that no request has a known price in dollars; see prices in the configuration")
    elif total.unpriced_requests or total.unpriced_summaries:
        of_requests = f"{total.unpriced_requests:,} of {total.requests:,} requests"
        of_summaries = f"{total.unpriced_summaries:,} of {total.summaries:,} calls for summaries"
        parts = ((total.unpriced_requests, of_requests), (total.unpriced_summaries, of_summaries))
        lacking = " and ".join(text for number, text in parts if number)
        lines.append(
            f"* {lacking} have no known price in dollars and are not in the money; see prices in the configuration"
        )
    if total.estimated_requests:
        are = "is" if total.estimated_requests == 1 else "are"
        told = count(total.estimated_requests, "request")
        lines.append(f"{told} {are} estimated, because the upstream reported no usage")
    if total.summaries > total.unpriced_summaries:
        told = count(total.summaries, "answered call")
        lines.append(f"cost includes {told} for summaries, {write_cost(total.summary_nanodollars)}")
    if not total.is_unpriced:
        lines.append("without is what the same requests would have cost unchanged; it assumes that they were answered")
    return lines


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
