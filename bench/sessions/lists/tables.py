"""The rows as tables that are also Markdown: one for each price list and cache, and one over all lists.

Law: a table shows figures of rows, and computes none but means and maxima over lists.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean

from rich import box
from rich.table import Table

from bench.sessions.lists.rows import Group, Row

_MISSING = "-"


def build_table(rows: Sequence[Row], missing: Sequence[str]) -> Table:
    """The contestants by one price list. Those that could not run appear as missing."""
    headings = (
        "cost", "mean", "worst", "read", "expired", "fitting: cost", "mean", "worst", "> 1.02", "read", "expired",
        "summaries", "refused",
    )  # fmt: skip
    table = _begin(headings)
    for row in rows:
        fitting = row.fitting
        dearer = str(fitting.dearer_sessions)
        cells = (*_write(row.larger), *_write(fitting)[:3], dearer, *_write(fitting)[3:])
        table.add_row(row.contestant, *cells, str(row.summaries), str(row.refused))
    for name in missing:
        table.add_row(name, "not installed", *([""] * (len(headings) - 1)))
    return table


def build_overview(rows: Sequence[Row]) -> Table:
    """Each contestant over all price lists: the mean of its costs, and the worst of the worst."""
    table = _begin(("lists", "mean cost", "dearest list", "worst", "fitting: mean cost", "worst", "> 1.02"))
    for name in dict.fromkeys(row.contestant for row in rows):
        own = [row for row in rows if row.contestant == name]
        larger, fitting = [row.larger for row in own], [row.fitting for row in own]
        dearest = max(own, key=lambda row: row.larger.cost or 0.0)
        table.add_row(
            name,
            str(len(own)),
            _mean(group.cost for group in larger),
            f"{_ratio(dearest.larger.cost)} {dearest.prices}",
            _most(group.worst for group in larger),
            _mean(group.cost for group in fitting),
            _most(group.worst for group in fitting),
            str(sum(group.dearer_sessions for group in fitting)),
        )
    return table


def _begin(headings: Sequence[str]) -> Table:
    table = Table(box=box.MARKDOWN)
    table.add_column("contestant", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _write(group: Group) -> tuple[str, ...]:
    lost = group.lost_dollars / group.dollars if group.dollars else None
    shares = (_MISSING if share is None else f"{share:.1%}" for share in (group.read, lost))
    return (*(_ratio(ratio) for ratio in (group.cost, group.mean, group.worst)), *shares)


def _ratio(ratio: float | None) -> str:
    return _MISSING if ratio is None else f"{ratio:.3f}"


def _mean(ratios: Iterable[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    return _ratio(fmean(known) if known else None)


def _most(ratios: Iterable[float | None]) -> str:
    return _ratio(max((ratio for ratio in ratios if ratio is not None), default=None))
