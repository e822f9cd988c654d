"""The result of a replay as JSON and as tables: figures, what changes between two variants, what a reader must know.

Law: names are stable, because scripts read them; docs/reference/replay.md lists them. Each setting of the curve is the
person's own configuration with a few keys replaced. Each figure of a table is one of the JSON.
"""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab.proxy.cli.records.run import Replay
from trimtab.proxy.cli.records.sums import INPUT_TOKENS, NOTHING, SLIDING, STRATEGIES, SUMMARIES, TRIMTAB, USD
from trimtab.proxy.cli.tables import make_console, print_fitting, safe, write_dollars
from trimtab.proxy.config.schema import Config
from trimtab.proxy.telemetry.logs import escape
from trimtab.rules.economy import Economy

COMPARED = ("sent_tokens", "moved_cuts", "summaries", "sessions_refused", "prefix_kept")
"""Figures of a model that are compared between two variants. Costs are compared, too."""
LOG_NOTES = (
    "a log holds no messages, so nothing was planned again: these are the figures that were logged",
    (
        "what the requests would have cost without trimtab or with a sliding window, sessions, and other"
        " configurations can be told from recordings only"
    ),
    "costs are at list prices, for upstreams that the catalogue knows by their host",
)
REPLACED = (
    "requests held a credential, which was replaced when they were recorded: their tokens and cuts may differ a little,"
    " and they are not compared with what was sent"
)
"""Said of requests with `***` in a body."""
THRESHOLDS = (0.2, 0.4, 0.6, 0.8)  # Values of high_water. Chosen: from a very early cut to a very late one.
CURVE_NOTES = (
    "cost: with the summaries, as a share of what the requests cost unchanged",
    (
        "kept: of the identifiers that the next answer needed and the conversation held, those that were still"
        " forwarded; only requests that were forwarded otherwise than the client sent them count"
    ),
)


def describe(replay: Replay, kind: str, path: Path) -> dict[str, Any]:
    variants = [sums.describe() for sums in replay.variants]
    return {
        "input": {
            "kind": kind,
            "path": str(path),
            "requests": replay.requests,
            "first_at": replay.first_at,
            "last_at": replay.last_at,
        },
        "sides": variants,
        "changes": compare(*variants) if len(variants) > 1 else [],
        "unreadable": structs.asdict(replay.unreadable),
        "differing": structs.asdict(replay.differing),
        "not_replayed": replay.not_replayed,
        "notes": list_notes(replay, kind, variants),
    }


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """The figures of each model that both variants have, side by side."""
    others = {model["name"]: model for model in after["models"]}
    changes = []
    for model in before["models"]:
        if (other := others.get(model["name"])) is not None:
            figures = {name: {"before": model[name], "after": other[name]} for name in COMPARED}
            costs = {
                unit: {"before": sum_cost(amounts), "after": sum_cost(other["costs"][unit])}
                for unit, amounts in model["costs"].items()
                if unit in other["costs"]
            }
            changes.append({"name": model["name"], **figures, "costs": costs})
    return changes


def sum_cost(costs: dict[str, float]) -> float | None:
    """What trimtab costs with the summaries that it asks for; None if it is not known."""
    return costs[TRIMTAB] + costs.get(SUMMARIES, 0.0) if TRIMTAB in costs else None


def has_unassigned(variant: dict[str, Any]) -> bool:
    """Whether the costs of a variant's sessions are without the summaries, which are in the sums of its models."""
    summaries = any(costs.get(SUMMARIES) for model in variant["models"] for costs in model["costs"].values())
    return variant["name"] == "recorded" and variant["sessions"]["number"] > 0 and summaries


def list_notes(replay: Replay, kind: str, variants: list[dict[str, Any]]) -> list[str]:
    if kind == "log":
        return list(LOG_NOTES)
    stands_in = any(variant["total"].get("stand_ins") for variant in variants)
    units = {unit for variant in variants for model in variant["models"] for unit in model["costs"]}
    notes = {
        "costs assume that the upstream's cache holds the beginning of the session's previous prompt, and misses"
        " nothing else": True,
        "nothing: the requests unchanged, as if the window were large enough; sliding: the oldest messages dropped"
        " so that the rest fits": True,
        "no model was asked: a digest stands in for each summary that was not recorded for the same cut; the call"
        " for it is priced as if the summary had the size that is reserved for it": stands_in,
        "cuts at cold caches are as recorded: those of another configuration, and the summaries that are written"
        " ahead for them, are not expected": kind == "recordings" and replay.configured,
        "a recorded call for a summary names no session, so the costs of recorded sessions are without summaries,"
        " cost (part): a session may cost more than nothing without being named": any(map(has_unassigned, variants)),
        "costs without a price in dollars are in the price of one prompt token that is not cached": INPUT_TOKENS
        in units,
        "completions are not known, so they are in no cost": kind == "bodies",
        f"{replay.redacted} {REPLACED}": replay.redacted,
    }
    return [note for note, is_so in notes.items() if is_so]


def list_settings(config: Config) -> dict[str, Config]:
    """A configuration with each economy, the one that keeps most first; then with each threshold, the latest first."""

    def with_keys(**keys: Any) -> Config:
        free = {"high_water": "auto", "low_water": "auto", "compact_at_tokens": None}
        return config.change_policies(lambda _: free | keys)

    economies = (Economy.CAREFUL, Economy.BALANCED, Economy.FRUGAL)
    found = {economy.value: with_keys(economy=economy, cut="when_it_pays") for economy in economies}
    thresholds = reversed(THRESHOLDS)
    return found | {f"high_water {share:g}": with_keys(high_water=share, cut="at_threshold") for share in thresholds}


def list_points(replay: Replay, kind: str, path: Path) -> dict[str, Any]:
    """The result of a replay with each economy and threshold, as JSON: costs are shares of doing nothing."""
    variants = [sums.describe() for sums in replay.variants]
    costs, points = dict[str, float](), list[dict[str, Any]]()
    for sums, described in zip(replay.variants, variants, strict=True):
        costs = sums.sum_costs()
        point = _make_point(replay, sums.name, costs[TRIMTAB] + costs[SUMMARIES], costs[NOTHING])
        counts = {name: described["total"].get(name) or 0 for name in ("moved_cuts", "summaries", "refused")}
        points.append(point | counts)
    points += [_make_point(replay, name, costs[name], costs[NOTHING]) for name in (SLIDING, NOTHING)]
    return {
        "input": {"kind": kind, "path": str(path), "requests": replay.requests},
        "curve": points,
        "unreadable": structs.asdict(replay.unreadable),
        "differing": structs.asdict(replay.differing),
        "notes": [*CURVE_NOTES, *list_notes(replay, kind, variants)],
    }


def _make_point(replay: Replay, name: str, cost: float, nothing: float) -> dict[str, Any]:
    tally = replay.needed.tallies.get(name) if replay.needed is not None else None
    kept = 1.0 if name == NOTHING else None if tally is None else tally.share_kept()
    needed = 0 if tally is None else tally.needed
    return {"name": name, "cost": cost / nothing if nothing else None, "needed_kept": kept, "needed": needed}


# The same figures as tables.
WIDE_CHARS = 160  # Width if the output is no terminal. Chosen: no column of usual figures is broken.
HEADER_CHARS = 23  # width at which a header is broken. Chosen: as wide as a column of one model.
SPARE = (*STRATEGIES[:0:-1], "refused", "why", "requests", "too long", "needed", "summaries", "added")
"""Columns that a narrow terminal does without, the least important first."""
FIGURE_CHARS, MODEL_CHARS = 30, 26
"""Widths of names of figures, and of a model. Chosen: the longest have 24, and about 20 (a cost with its share)."""


def print_report(report: dict[str, Any], console: Console | None = None) -> None:
    console = console or make_console(WIDE_CHARS)
    kind, tables = report["input"]["kind"], list[Table]()
    for variant in report["sides"]:
        tables += [*_make_models(variant, kind, console.width), _make_rules(variant)]
        tables += [_make_sessions(variant)] if variant["sessions"]["number"] else []
    _print(report, tables + ([_make_changes(report)] if report["changes"] else []), console)


def print_curve(report: dict[str, Any]) -> None:
    """Print what each economy and threshold costs and keeps. The table has less than 80 columns."""
    table = _make_table("cost and memory", ("setting", "cost", "kept", "needed", "cuts", "summaries", "refused"))
    for one in report["curve"]:
        cost = "-" if one["cost"] is None else f"{one['cost']:.3f}"
        counts = (_figure(one.get(name)) for name in ("moved_cuts", "summaries", "refused"))
        table.add_row(safe(one["name"]), cost, _figure(one["needed_kept"]), f"{one['needed']:,}", *counts)
    _print(report, [table], make_console(0))


def _print(report: dict[str, Any], tables: Iterable[Table], console: Console) -> None:
    read = report["input"]
    console.print(safe(f"{read['requests']:,} requests of {read['path']} ({read['kind']})"))
    for table in tables:
        print_fitting(console, table, SPARE)
    for line in _list_lines(report):
        console.print(safe(line))


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
    yield "requests", _figure(model.get("requests"))
    yield "original tokens", _figure(original)
    yield "sent tokens", _figure(sent)
    yield "saved", f"{(original - sent) / original:.1%}" if original else "-"
    yield "requests with a cut", _figure(sum(model.get("cuts", {}).values()))
    if kind != "log":
        yield "cuts made", _figure(model.get("moved_cuts"))
    yield "summaries", _figure(model.get("summaries"))
    yield "prefix kept", _figure(model.get("prefix_kept"))
    if kind == "log":
        yield "requests over the limit", _figure(model.get("over_limit"))
    else:
        yield "sessions over the window", _figure(model.get("sessions_over_window"))


def _list_costs(model: dict[str, Any], kind: str) -> Iterable[tuple[str, str]]:
    costs: dict[str, dict[str, float]] = model.get("costs", {})
    unit, amounts = next(iter(costs.items()), ("", {}))
    own = sum_cost(amounts)
    yield "cost", _money(own, unit)
    for strategy in STRATEGIES[1:]:
        other = amounts.get(strategy)
        yield f"cost, {strategy}", _money(other, unit) + (f" ({own / other:.2f})" if own is not None and other else "")
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
                before, after = pair["before"], pair["after"]
                changed = _change(before, after) if isinstance(before, int) and isinstance(after, int) else ""
                figure = safe(name.replace("_", " "))
                table.add_row(safe(change["name"]), figure, _figure(before), _figure(after), changed)
        for unit, pair in change["costs"].items():
            told = _money(pair["before"], unit), _money(pair["after"], unit)
            table.add_row(safe(change["name"]), "cost", *told, _change(pair["before"], pair["after"]))
    return table


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


def _figure(value: float | None) -> str:
    """A count, or a share in percent; `-` if it is not known."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.1%}"


def _money(amount: float | None, unit: str) -> str:
    if amount is None:
        return "-"
    return write_dollars(amount) if unit == USD else f"{amount:,.0f}"


def _change(before: float | None, after: float | None) -> str:
    return f"{after / before - 1:+.1%}" if before and after is not None else ""
