"""The tables of `trimtab replay`.

Law: they are imported only if tables are printed, because they need rich. Each figure is one of the JSON.
"""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab.proxy.cli.records.costs import STRATEGIES, USD
from trimtab.proxy.cli.records.report import has_unassigned, sum_cost
from trimtab.proxy.cli.tables import make_console, print_fitting, safe, write_dollars
from trimtab.proxy.telemetry.logs import escape

WIDE_CHARS = 160
"""Width if the output is no terminal. Chosen: no column of usual figures is broken."""
HEADER_CHARS = 23
"""Width at which a header is broken. Chosen: as wide as a column of one model."""
SPARE = (*STRATEGIES[:0:-1], "refused", "why", "requests", "too long", "needed", "summaries", "added")
"""Columns that a narrow terminal does without, the least important first."""
FIGURE_CHARS, MODEL_CHARS = 30, 26
"""Width of the names of figures, and of one model. Chosen: the longest figure has 24 characters, a cost with its share
about 20."""


def print_report(report: dict[str, Any], console: Console | None = None) -> None:
    console = console or make_console(WIDE_CHARS)
    _print_input(report, console)
    kind = report["input"]["kind"]
    for variant in report["sides"]:
        tables = [*_make_models(variant, kind, console.width), _make_rules(variant)]
        if variant["sessions"]["number"]:
            tables.append(_make_sessions(variant))
        for table in tables:
            print_fitting(console, table, SPARE)
    if report["changes"]:
        print_fitting(console, _make_changes(report))
    for line in _list_lines(report):
        console.print(safe(line))


def print_curve(report: dict[str, Any], console: Console | None = None) -> None:
    """Print what each economy and threshold costs and keeps. The table has less than 80 columns."""
    console = console or make_console(0)
    _print_input(report, console)
    table = _make_table("cost and memory", ("setting", "cost", "kept", "needed", "cuts", "summaries", "refused"))
    for one in report["curve"]:
        cost = "-" if one["cost"] is None else f"{one['cost']:.3f}"
        counts = (f"{one[name]:,}" if name in one else "-" for name in ("moved_cuts", "summaries", "refused"))
        table.add_row(safe(one["name"]), cost, _percent(one["needed_kept"]), f"{one['needed']:,}", *counts)
    print_fitting(console, table, SPARE)
    for line in _list_lines(report):
        console.print(safe(line))


def _print_input(report: dict[str, Any], console: Console) -> None:
    read = report["input"]
    console.print(safe(f"{read['requests']:,} requests of {read['path']} ({read['kind']})"))


def _make_models(variant: dict[str, Any], kind: str, width_chars: int) -> Iterable[Table]:
    """One row for each figure and one column for each model; several tables if there are many models."""
    names = [name for name, _ in (*_list_counts(variant["total"], kind), *_list_costs(variant["total"], kind))]
    columns = max((width_chars - FIGURE_CHARS) // MODEL_CHARS, 1)
    for start in range(0, len(variant["models"]), columns):
        models = variant["models"][start : start + columns]
        table = _make_table(variant["name"], ("figure", *(model["name"] for model in models)))
        told = [dict((*_list_counts(model, kind), *_list_costs(model, kind))) for model in models]
        for name in names:
            table.add_row(name, *(one[name] for one in told))
        yield table


def _list_counts(model: dict[str, Any], kind: str) -> Iterable[tuple[str, str]]:
    original, sent = model.get("original_tokens", 0), model.get("sent_tokens", 0)
    yield "requests", _count(model.get("requests"))
    yield "original tokens", _count(original)
    yield "sent tokens", _count(sent)
    yield "saved", _share(original - sent, original)
    yield "requests with a cut", _count(sum(model.get("cuts", {}).values()))
    if kind != "log":
        yield "cuts made", _count(model.get("moved_cuts"))
    yield "summaries", _count(model.get("summaries"))
    yield "prefix kept", _percent(model.get("prefix_kept"))
    if kind == "log":
        yield "requests over the limit", _count(model.get("over_limit"))
    else:
        yield "sessions over the window", _count(model.get("sessions_over_window"))


def _list_costs(model: dict[str, Any], kind: str) -> Iterable[tuple[str, str]]:
    costs: dict[str, dict[str, float]] = model.get("costs", {})
    unit, amounts = next(iter(costs.items()), ("", {}))
    own = sum_cost(amounts)
    yield "cost", _money(own, unit)
    for strategy in STRATEGIES[1:]:
        yield f"cost, {strategy}", _money(amounts.get(strategy), unit) + _ratio(own, amounts.get(strategy))
    if kind == "recordings":
        requests, summaries = model.get("booked_usd"), model.get("booked_summaries_usd")
        is_booked = requests is not None or summaries is not None
        yield "booked", _money((requests or 0.0) + (summaries or 0.0) if is_booked else None, "usd")
        yield "booked, nothing", _money(model.get("booked_without_usd"), "usd")


def _make_rules(variant: dict[str, Any]) -> Table:
    table = _make_table(f"{variant['name']}: tokens by rule", ("model", "rule", "saved", "added"))
    for model in variant["models"]:
        for rule in dict.fromkeys((*model["saved_tokens"], *model["added_tokens"])):
            saved, added = model["saved_tokens"].get(rule, 0), model["added_tokens"].get(rule, 0)
            if saved or added:
                table.add_row(safe(model["name"]), safe(rule), f"{saved:,}", f"{added:,}")
    return table


def _make_sessions(variant: dict[str, Any]) -> Table:
    sessions = variant["sessions"]
    title = f"{variant['name']}: {sessions['number']:,} sessions, {sessions['over_window']:,} of them over the window"
    own = "cost (part)" if has_unassigned(variant) else "cost"
    table = _make_table(title, ("session", "why", "requests", "longest", "too long", "refused", own, *STRATEGIES[1:]))
    for why, shown in (("longest", sessions["longest"]), ("costs more", sessions["dearest"])):
        for one in shown:
            counts = (one["requests"], one["longest_tokens"], one["over_window"], one["refused"])
            own = _money(sum_cost(one["costs"]), one["unit"])
            costs = (own, *(_money(one["costs"][strategy], one["unit"]) for strategy in STRATEGIES[1:]))
            table.add_row(safe(one["name"]), why, *(f"{count:,}" for count in counts), *costs)
    return table


def _make_changes(report: dict[str, Any]) -> Table:
    before, after = (variant["name"] for variant in report["sides"])
    table = _make_table(f"what changes from {before} to {after}", ("model", "figure", "before", "after", "change"))
    for change in report["changes"]:
        for name, pair in change.items():
            if name not in {"name", "costs"}:
                table.add_row(
                    safe(change["name"]), safe(name.replace("_", " ")), *_make_pair(pair["before"], pair["after"])
                )
        for unit, pair in change["costs"].items():
            told = _money(pair["before"], unit), _money(pair["after"], unit)
            table.add_row(safe(change["name"]), "cost", *told, _change(pair["before"], pair["after"]))
    return table


def _make_pair(before: Any, after: Any) -> tuple[str, str, str]:
    if isinstance(before, int) and isinstance(after, int):
        return f"{before:,}", f"{after:,}", _change(before, after)
    return _percent(before), _percent(after), ""


def _list_lines(report: dict[str, Any]) -> Iterable[str]:
    for name, word in (("unreadable", "could not be read"), ("differing", "were sent otherwise than planned now")):
        places = report[name]
        if places["number"]:
            yield f"{places['number']:,} {word}:"
            yield from (f"  {one['place']}: {one['reason']}" for one in places["places"])
            if places["number"] > len(places["places"]):
                yield f"  and {places['number'] - len(places['places']):,} more"
    if report.get("not_replayed"):
        yield f"{report['not_replayed']:,} requests were not planned again; their recorded figures are in the sums"
    yield from (f"- {note}" for note in report["notes"])


def _make_table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=Text(escape(title), "table.title"), title_justify="left")
    for number, name in enumerate(columns):
        header = Text("\n".join(textwrap.wrap(escape(name), HEADER_CHARS)))
        table.add_column(header, justify="right" if number else "left", overflow="fold", no_wrap=number > 0)
    return table


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _money(amount: float | None, unit: str) -> str:
    if amount is None:
        return "-"
    return write_dollars(amount) if unit == USD else f"{amount:,.0f}"


def _ratio(own: float | None, other: float | None) -> str:
    return f" ({own / other:.2f})" if own is not None and other else ""


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _change(before: float | None, after: float | None) -> str:
    return f"{after / before - 1:+.1%}" if before and after is not None else ""
