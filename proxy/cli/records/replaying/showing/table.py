"""The tables of `trimtab replay`.

Law: they are imported only if tables are printed, because they need rich. Each figure is one of the JSON. Text of a
recording cannot control the terminal.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.cli.records.replaying.arms import ARMS
from proxy.cli.records.replaying.showing.report import sum_cost
from proxy.telemetry.logs import escape

WIDE_CHARS = 160
"""Width if the output is no terminal. Chosen: no column of usual figures is broken."""


def print_report(report: dict[str, Any], console: Console | None = None) -> None:
    """Print a replay's result."""
    console = console or Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDE_CHARS)
    told = report["input"]
    console.print(_safe(f"{told['requests']:,} requests of {told['path']} ({told['kind']})"))
    for side in report["sides"]:
        console.print(_tell_models(side, report["input"]["kind"]))
        console.print(_tell_rules(side))
        if side["sessions"]["number"]:
            console.print(_tell_sessions(side))
    if report["changes"]:
        console.print(_tell_changes(report))
    for line in _list_lines(report):
        console.print(_safe(line))


def _tell_models(side: dict[str, Any], kind: str) -> Table:
    over = "over the limit" if kind == "log" else "sessions over the window"
    names = ("requests", "original", "sent", "saved", "cuts", "summaries", "prefix kept", over)
    table = _make_table(side["name"], ("model", *names, "cost", *ARMS[1:]))
    for model in side["models"]:
        counts = (model["requests"], model["original_tokens"], model["sent_tokens"])
        cuts = model["moved_cuts"] if kind != "log" else sum(model["cuts"].values())
        over_number = model["over_limit"] if kind == "log" else model["sessions_over_window"]
        table.add_row(
            _safe(model["name"]),
            *(f"{count:,}" for count in counts),
            _share(model["original_tokens"] - model["sent_tokens"], model["original_tokens"]),
            f"{cuts:,}",
            f"{model['summaries']:,}",
            _percent(model["prefix_kept"]),
            f"{over_number:,}",
            *_tell_costs(model["costs"]),
        )
    return table


def _tell_costs(costs: dict[str, dict[str, float]]) -> Iterable[str]:
    """The columns of costs: with trimtab and its summaries, and what the other arms cost, each with its share."""
    if not costs:
        return ["-"] * len(ARMS)
    unit, amounts = next(iter(costs.items()))
    own = sum_cost(amounts)
    others = (amounts.get(arm) for arm in ARMS[1:])
    return [_money(own, unit), *(_money(other, unit) + _ratio(own, other) for other in others)]


def _tell_rules(side: dict[str, Any]) -> Table:
    table = _make_table(f"{side['name']}: tokens by rule", ("model", "rule", "saved", "added"))
    for model in side["models"]:
        for rule in dict.fromkeys((*model["saved_tokens"], *model["added_tokens"])):
            saved, added = model["saved_tokens"].get(rule, 0), model["added_tokens"].get(rule, 0)
            if saved or added:
                table.add_row(_safe(model["name"]), _safe(rule), f"{saved:,}", f"{added:,}")
    return table


def _tell_sessions(side: dict[str, Any]) -> Table:
    sessions = side["sessions"]
    title = f"{side['name']}: {sessions['number']:,} sessions, {sessions['over_window']:,} of them over the window"
    table = _make_table(title, ("session", "why shown", "requests", "longest", "over the window", "refused", *ARMS))
    for why, shown in (("longest", sessions["longest"]), ("costs more", sessions["dearest"])):
        for one in shown:
            counts = (one["requests"], one["longest_tokens"], one["over_window"], one["refused"])
            costs = (_money(one["costs"][arm], one["unit"]) for arm in ARMS)
            table.add_row(_safe(one["name"]), why, *(f"{count:,}" for count in counts), *costs)
    return table


def _tell_changes(report: dict[str, Any]) -> Table:
    before, after = (side["name"] for side in report["sides"])
    table = _make_table(f"what changes from {before} to {after}", ("model", "figure", "before", "after", "change"))
    for change in report["changes"]:
        for name, pair in change.items():
            if name not in {"name", "costs"}:
                table.add_row(
                    _safe(change["name"]), _safe(name.replace("_", " ")), *_tell_pair(pair["before"], pair["after"])
                )
        for unit, pair in change["costs"].items():
            told = _money(pair["before"], unit), _money(pair["after"], unit)
            table.add_row(_safe(change["name"]), "cost", *told, _change(pair["before"], pair["after"]))
    return table


def _tell_pair(before: Any, after: Any) -> tuple[str, str, str]:
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
    if report["not_replayed"]:
        yield f"{report['not_replayed']:,} requests were not planned again; their recorded figures are in the sums"
    yield from (f"- {note}" for note in report["notes"])


def _make_table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=Text(escape(title), "table.title"), title_justify="left")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    return table


def _safe(text: str) -> Text:
    return Text(escape(text))


def _money(amount: float | None, unit: str) -> str:
    if amount is None:
        return "-"
    if unit != "usd":
        return f"{amount:,.0f}"
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}"


def _ratio(own: float | None, other: float | None) -> str:
    return f" ({own / other:.2f})" if own is not None and other else ""


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _change(before: float | None, after: float | None) -> str:
    return f"{after / before - 1:+.1%}" if before and after is not None else ""
