"""The result of a contestant at a window: a row, the rows as a table that is also Markdown, and a plot.

Law: a ratio is a cost divided by the cost of doing nothing in the same sessions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from bench.material.workload import Session
from bench.sessions.ledger import Prices, price, turns
from bench.sessions.prompts import count_parts, read_part
from bench.sessions.replaying.replay import Replayed

_MISSING = "-"
_FIGURE_INCHES = (11.0, 6.0)
_DOTS_PER_INCH = 140


@dataclass(frozen=True, slots=True)
class Window:
    """A context window and its reserve for the completion, in tokens."""

    tokens: int
    reserve_tokens: int

    @property
    def limit_tokens(self) -> int:
        """The most tokens that a prompt may have."""
        return self.tokens - self.reserve_tokens


@dataclass(frozen=True, slots=True)
class Run:
    """The sessions as a contestant left them, and how long it took."""

    contestant: str
    replayed: tuple[Replayed, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Row:
    """A contestant at a window.

    Ratios are to doing nothing, for the sessions larger than the window unless the name has `smaller`. `kept` is the
    share of forwarded tokens (without each session's first request) that were also at the front of the request before.
    `sent` is the share of doing nothing's prompt tokens. `over_limit` are turns larger than window - reserve;
    `over_window` are turns larger than the window, which an upstream would refuse (None: not counted). Counts are of
    all sessions.
    """

    contestant: str
    window_tokens: int
    reserve_tokens: int
    sessions: int
    larger_sessions: int
    cost: float | None
    cost_with_completions: float | None
    cost_with_cache_writes: float | None
    worst: float | None
    worst_session: str
    smaller_cost: float | None
    smaller_worst: float | None
    smaller_worst_session: str
    kept: float | None
    sent: float | None
    summaries: int
    failed_summaries: int
    over_limit: int
    invalid: int
    refused: int
    requests: int
    seconds: float
    over_window: int | None = None


@dataclass(frozen=True, slots=True)
class _Pair:
    """A session with and without the contestant."""

    done: Replayed
    nothing: Replayed

    def ratio(self, prices: Prices) -> float:
        return price(self.done.calls, prices) / price(self.nothing.calls, prices)


def summarise(run: Run, nothing: Sequence[Replayed], window: Window, prices: Prices, writing: Prices) -> Row:
    """The row of a contestant, without sessions that it did not complete. `writing` also prices cache writes."""
    by_id = {one.session.id: one for one in nothing}
    pairs = [_Pair(done, by_id[done.session.id]) for done in run.replayed if done.complete]
    larger = [pair for pair in pairs if _last_tokens(pair.nothing) > window.limit_tokens]
    smaller = [pair for pair in pairs if _last_tokens(pair.nothing) <= window.limit_tokens]
    worst, worst_session = _find_worst(larger, prices)
    smaller_worst, smaller_worst_session = _find_worst(smaller, prices)
    all_turns = [call for pair in pairs for call in turns(pair.done.calls)]
    return Row(
        contestant=run.contestant,
        window_tokens=window.tokens,
        reserve_tokens=window.reserve_tokens,
        sessions=len(pairs),
        larger_sessions=len(larger),
        cost=_total(larger, prices),
        cost_with_completions=_total(larger, prices, with_completions=True),
        cost_with_cache_writes=_total(larger, writing),
        worst=worst,
        worst_session=worst_session,
        smaller_cost=_total(smaller, prices),
        smaller_worst=smaller_worst,
        smaller_worst_session=smaller_worst_session,
        kept=_share_kept(larger),
        sent=_share_sent(larger),
        summaries=sum(call.is_summary for pair in pairs for call in pair.done.calls),
        failed_summaries=sum(pair.done.failed_summaries for pair in pairs),
        over_limit=sum(call.prompt_tokens > window.limit_tokens for call in all_turns),
        invalid=sum(map(_count_invalid, pairs)),
        refused=sum(pair.done.refused for pair in pairs),
        requests=sum(len(pair.done.session.stops) for pair in pairs),
        seconds=run.seconds,
        over_window=sum(call.prompt_tokens > window.tokens for call in all_turns),
    )


def _count_invalid(pair: _Pair) -> int:
    """Turns whose calls and results do not pair, and turns without a user message although the client's had one."""
    unpaired = sum(not call.paired for call in turns(pair.done.calls))
    userless, own = (sum(not call.has_user for call in turns(one.calls)) for one in (pair.done, pair.nothing))
    return unpaired + max(userless - own, 0)


def _last_tokens(nothing: Replayed) -> int:
    return max(call.prompt_tokens for call in nothing.calls)


def _total(pairs: Sequence[_Pair], prices: Prices, *, with_completions: bool = False) -> float | None:
    """The ratio of the sums; None if there is no session."""
    completions = sum(_count_completions(pair.done.session) for pair in pairs) * prices.output * with_completions
    cost = sum(price(pair.done.calls, prices) for pair in pairs) + completions
    nothing = sum(price(pair.nothing.calls, prices) for pair in pairs) + completions
    return cost / nothing if pairs else None


def _count_completions(session: Session) -> int:
    """Tokens that the model wrote in a session."""
    return sum(count_parts(map(read_part, answer)) for answer in session.answers())


def _find_worst(pairs: Iterable[_Pair], prices: Prices) -> tuple[float | None, str]:
    ratios = [(pair.ratio(prices), pair.done.session.id) for pair in pairs]
    return max(ratios, default=(None, ""))


def _share_kept(pairs: Iterable[_Pair]) -> float | None:
    later = [call for pair in pairs for call in turns(pair.done.calls) if call.kept_tokens is not None]
    tokens = sum(call.prompt_tokens for call in later)
    return sum(call.kept_tokens or 0 for call in later) / tokens if tokens else None


def _share_sent(pairs: Sequence[_Pair]) -> float | None:
    sent, nothing = (
        sum(call.prompt_tokens for pair in pairs for call in turns((pair.done if done else pair.nothing).calls))
        for done in (True, False)
    )
    return sent / nothing if nothing else None


def build_table(rows: Sequence[Row], missing: Sequence[str], cache_write: float) -> Table:
    """One window's table; contestants that could not run appear as missing.

    A contestant that was replayed with fewer sessions shows their number; its ratios are of those.
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
    """Draw cost and prefix kept of each contestant, a colour for each window."""
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
    figure.suptitle("Sessions larger than the window, cost of summaries included")
    figure.savefig(file, dpi=_DOTS_PER_INCH)
    plt.close(figure)
