"""Rows as tables that are also Markdown, and as a plot of cost against what was kept.

Law: an unknown figure is a dash, never a zero.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from bench.retention.needed.planted import DEPTHS, MOST_CUTS, ChatFound, PlantedGoals, Survival
from bench.retention.needed.rows import Row, find_economy, judge
from bench.retention.needed.tally import CLASSES
from bench.sessions.report import Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GOALS = PlantedGoals()
_MISSING = "-"
_WIDTH = 300
_HEADINGS = (
    "contestant", "cost", "worst", "smaller: cost", "smaller: worst", "prefix kept", "needed kept", "decoded",
    "of the removed", "kept, all sessions", "tokens retained", "re-reads", "summaries", "refused",
)  # fmt: skip
_ECONOMIES = ("careful", "balanced", "frugal")


def show_window(rows: Sequence[Row], missing: Iterable[str]) -> None:
    """Print the rows of one window, their classes, and the goals."""
    if not rows:
        return
    first = rows[0]
    print(
        f"\nwindow {first.window_tokens}, reserve {first.reserve_tokens}: {first.larger_sessions} sessions are larger\n"
    )
    table = _open_table(_HEADINGS)
    for row in rows:
        table.add_row(row.label, *_write_cells(row))
    for name in missing:
        table.add_row(name, "not installed", *([""] * (len(_HEADINGS) - 2)))
    _show(table)
    print("\nneeded kept / of the removed, by class of identifier\n")
    _show(_build_classes(rows))
    for row in rows:
        told = list(judge(row))
        if told:
            print(f"\ngoals of {row.label} at {row.window_tokens}: {'; '.join(told)}")


def _build_classes(rows: Sequence[Row]) -> Table:
    table = _open_table(("contestant", *CLASSES))
    for row in rows:
        shares = (row.by_class[kind] for kind in CLASSES)
        table.add_row(row.label, *(f"{_share(kept)} / {_share(recalled)}" for kept, recalled, _ in shares))
    return table


def _write_cells(row: Row) -> Iterable[str]:
    yield from (_ratio(value) for value in (row.cost, row.worst, row.smaller_cost, row.smaller_worst))
    yield from (_share(value) for value in (row.prefix_kept, row.kept, row.kept_decoded, row.recalled, row.all_kept))
    yield _MISSING if row.retained_tokens is None else f"{row.retained_tokens:,.0f}"
    yield f"{row.rereads} of {row.answered_calls}"
    yield str(row.summaries)
    yield str(row.refused)


def _ratio(value: float | None) -> str:
    return _MISSING if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return _MISSING if value is None else f"{value:.1%}"


def _open_table(headings: Sequence[str]) -> Table:
    table = Table(box=box.MARKDOWN)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == headings[0] else "right", no_wrap=True)
    return table


def _show(table: Table) -> None:
    Console(width=_WIDTH).print(table)


def show_survival(survival: Survival, window: Window, summariser: str) -> None:
    """Print which planted facts are still there, by cuts and by depth."""
    goal = GOALS.shared
    if not survival.planted:
        print(f"\nwindow {window.tokens}: no session is cut {MOST_CUTS} times")
        return
    number = sum(count for key, count in survival.planted.items() if not key[2])
    print(
        f"\nwindow {window.tokens}, summariser {summariser}: {number} facts; still in the body, by cuts and by depth\n"
    )
    cuts = range(MOST_CUTS + 1)
    table = _open_table(("facts", *(f"{number} cuts" for number in cuts), *(f"{depth} %" for depth in DEPTHS)))
    for is_shared, label in ((True, "share a word with the tail"), (False, "do not")):
        by_cuts = [survival.share(is_shared=is_shared, cuts=number) for number in cuts]
        by_depth = [survival.share(is_shared=is_shared, depth=depth, cuts=MOST_CUTS) for depth in DEPTHS]
        table.add_row(label, *map(_share, (*by_cuts, *by_depth)))
    _show(table)
    reached = survival.share(is_shared=True, cuts=MOST_CUTS) or 0.0
    print(f"\nshare a word, after {MOST_CUTS} cuts: {reached:.1%} >= {goal:.0%}: {_judge(reached, goal)}")


def show_chats(found: Sequence[ChatFound], summariser: str) -> None:
    """Print how many facts of chats are in the last body."""
    told, users, assistants = (
        sum(values) for values in zip(*((x.told, x.by_user, x.by_assistant) for x in found), strict=True)
    )
    share = (users + assistants) / told
    print(
        f"\nchat, summariser {summariser}: {len(found)} chats of {told // len(found)} turns, {found[0].cuts} cuts each;"
    )
    print(f"of {told // 2} facts each, {users} by the user and {assistants} by the assistant are in the last body:")
    print(f"{share:.1%} >= {GOALS.chat:.0%}: {_judge(share, GOALS.chat)}")


def _judge(value: float, goal: float) -> str:
    return "met" if value >= goal else "MISSED"


def draw_plot(rows: Sequence[Row], file: Path) -> None:
    """Draw cost against needed kept, one panel a window: trimtab's economies as a curve, the others as points."""
    import matplotlib as mpl  # noqa: PLC0415 - of the bench extra: tables do without it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    windows = sorted({row.window_tokens for row in rows})
    figure, panels = plt.subplots(1, len(windows), squeeze=False, figsize=(4.6 * len(windows), 5.2), sharey=True)
    for tokens, axes in zip(windows, panels[0], strict=True):
        chosen = [row for row in rows if row.window_tokens == tokens and row.cost and row.kept is not None]
        curve = sorted(filter(_is_on_curve, chosen), key=lambda row: _ECONOMIES.index(find_economy(row.settings)))
        others = [row for row in chosen if row not in curve and row.contestant != "nothing"]
        _draw_points(axes, curve, others)
        axes.set_title(f"window {tokens // 1000}k")
        axes.set_xlabel("cost, as a share of doing nothing (lower is better)")
        axes.grid(color="0.9")
        axes.margins(y=0.08)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("needed identifiers still forwarded, % (higher is better)")
    figure.suptitle("What sessions cost, and what they still know")
    figure.tight_layout()
    figure.savefig(file, dpi=140)
    plt.close(figure)


def _is_on_curve(row: Row) -> bool:
    return row.contestant == "trimtab" and row.summariser == "canned" and find_economy(row.settings) in _ECONOMIES


def _draw_points(axes: "Axes", curve: Sequence[Row], others: Sequence[Row]) -> None:
    """Draw the curve with the names of its economies, and each other contestant with its name.

    The curve rises to the right, so the names of its points are below it, on the right.
    """
    places = [_place(row) for row in curve]
    axes.plot([place[0] for place in places], [place[1] for place in places], "o-", color="tab:blue", zorder=3)
    named = [(row, f"trimtab, {find_economy(row.settings)}", "tab:blue") for row in curve]
    named += [(row, row.label, "0.35") for row in others]
    for number, (row, label, color) in enumerate(named):
        if row not in curve:
            axes.plot(*_place(row), marker="s", color=color, linestyle="", zorder=2)
        up = -1 if row in curve else 13 if number % 2 else -5
        offset = "offset points"
        axes.annotate(label, _place(row), textcoords=offset, xytext=(6, up), va="top", fontsize=7.5, color=color)


def _place(row: Row) -> tuple[float, float]:
    """Cost, and needed kept in per cent."""
    return row.cost or 0.0, 100 * (row.kept or 0.0)
