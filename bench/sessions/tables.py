"""The rows as a table that is Markdown too, and as a plot.

Law: one table for each window, the contestants in the order in which they ran.
"""

from collections.abc import Sequence
from pathlib import Path

from report import Row
from rich import box
from rich.table import Table

_MISSING = "-"
_FIGURE_INCHES = (11.0, 6.0)
_DOTS_PER_INCH = 140


def build_table(rows: Sequence[Row], missing: Sequence[str], cache_write: float) -> Table:
    """One window's table; contestants that could not run stand in it as missing.

    One that was replayed with fewer sessions than others says with how many: its ratios are of those.
    """
    headings = (
        "contestant", "cost", "with completions", f"cache write {cache_write:g}", "worst session",
        "smaller: cost", "smaller: worst", "prefix kept", "tokens sent", "summaries", "over limit", "over window",
        "invalid", "refused", "seconds",
    )  # fmt: skip
    table = Table(box=box.MARKDOWN)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "contestant" else "right", no_wrap=True)
    most = max((row.sessions for row in rows), default=0)
    for row in rows:
        part = "" if row.sessions == most else f" ({row.sessions} sessions)"
        table.add_row(row.contestant + part, *_write_cells(row))
    for name in missing:
        table.add_row(name, "not installed", *([""] * (len(headings) - 2)))
    return table


def _write_cells(row: Row) -> Sequence[str]:
    failed = f" + {row.failed_summaries} failed" if row.failed_summaries else ""
    ratios = (
        row.cost, row.cost_with_completions, row.cost_with_cache_writes, row.worst, row.smaller_cost, row.smaller_worst,
    )  # fmt: skip
    return (
        *(_MISSING if ratio is None else f"{ratio:.3f}" for ratio in ratios),
        *(_MISSING if share is None else f"{share:.1%}" for share in (row.kept, row.sent)),
        f"{row.summaries}{failed}",
        str(row.over_limit),
        _MISSING if row.over_window is None else str(row.over_window),
        str(row.invalid),
        str(row.refused),
        f"{row.seconds:.0f}",
    )


def draw_plot(rows: Sequence[Row], file: Path) -> None:
    """Cost and prefix kept of each contestant, a colour for each window."""
    import matplotlib as mpl  # noqa: PLC0415 - of the bench extra: tables do without it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    names = list(dict.fromkeys(row.contestant for row in rows))[::-1]
    windows = sorted({row.window_tokens for row in rows})
    figure, (left, right) = plt.subplots(1, 2, sharey=True, figsize=_FIGURE_INCHES, layout="constrained")
    for number, tokens in enumerate(windows):
        chosen = [row for row in rows if row.window_tokens == tokens]
        # Beside each other, so that no dot hides another.
        places = [names.index(row.contestant) + 0.12 * ((len(windows) - 1) / 2 - number) for row in chosen]
        color = mpl.colormaps["viridis"](0.1 + 0.8 * number / max(len(windows) - 1, 1))
        label = f"{tokens // 1000}k"
        left.scatter([row.cost or float("nan") for row in chosen], places, color=color, label=label, zorder=3)
        right.scatter([(row.kept or float("nan")) * 100 for row in chosen], places, color=color, zorder=3)
    left.axvline(1.0, color="black", linewidth=0.8)
    left.set_xlim(left=0)
    left.set_xlabel("cost, as a share of doing nothing (lower is better)")
    left.set_yticks(range(len(names)), names)
    right.set_xlabel("prefix kept, % of forwarded tokens (higher is better)")
    right.set_xlim(0, 101)
    for axes in (left, right):
        axes.grid(axis="both", color="0.9", zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(title="window", loc="outside lower center", ncols=len(windows), frameon=False)
    figure.suptitle("Sessions larger than the window, summaries' cost included")
    figure.savefig(file, dpi=_DOTS_PER_INCH)
    plt.close(figure)
