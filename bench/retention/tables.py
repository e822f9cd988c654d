"""The facts kept as tables that are also Markdown, file by file, and as a plot."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.figures import print_table
from bench.retention.facts import UNBOUND, Run
from bench.retention.score import Share, summarise
from bench.retention.shorteners import OURS

ALL, DIAGNOSTICS = "all", "diagnostics"
GOALS = {ALL: {1000: 0.52, 4000: 0.72}, DIAGNOSTICS: {1000: 0.70, 4000: 0.90}}
_FIGURE_INCHES = (11.0, 4.8)
_DOTS_PER_INCH = 140


@dataclass(frozen=True, slots=True)
class Row:
    """Facts that a contestant keeps at a budget, in some outputs; at budget UNBOUND what it keeps without a budget."""

    contestant: str
    outputs: str
    budget_tokens: int
    facts: int
    exact: float
    spaceless: float
    mean_tokens: float


def show_facts(runs: Sequence[Run], budgets: Sequence[int]) -> list[dict[str, object]]:
    """Print a table for all facts and one for those of diagnostics; return the rows."""
    rows = [row for run in runs for row in _make_rows(run)]
    for outputs in GOALS:
        chosen = [row for row in rows if row.outputs == outputs]
        facts = max((row.facts for row in chosen), default=0)
        title = f"Facts kept, {outputs}: {facts} facts; exactly, in brackets without white space and escapes"
        headings = ("contestant", *(f"{budget} tokens" for budget in budgets), "without a budget", "tokens then, mean")
        print_table(title, headings, [_describe(run, chosen, budgets) for run in runs])
        for verdict in _judge(chosen):
            print(f"\n{verdict}")
    for excess in _describe_excess(runs):
        print(f"\n{excess}")
    return [asdict(row) for row in rows]


def _make_rows(run: Run) -> Iterator[Row]:
    for budget, scored in run.scored.items():
        for outputs in GOALS:
            share = summarise(scored, diagnostics_only=outputs == DIAGNOSTICS)
            if share:
                yield _make_row(run.contestant, outputs, budget, share)


def _make_row(contestant: str, outputs: str, budget: int, share: Share) -> Row:
    return Row(contestant, outputs, budget, share.facts, share.exact, share.spaceless, share.mean_tokens)


def _describe(run: Run, rows: Sequence[Row], budgets: Sequence[int]) -> list[str]:
    if run.missing:
        return [run.contestant, run.missing, *([""] * (len(budgets) + 1))]
    own = {row.budget_tokens: row for row in rows if row.contestant == run.contestant}
    cells = [_write(own.get(budget)) for budget in (*budgets, UNBOUND)]
    alone = own.get(UNBOUND)
    return [run.contestant, *cells, f"{alone.mean_tokens:,.0f}" if alone else ""]


def _write(row: Row | None) -> str:
    return f"{row.exact:.1%} ({row.spaceless:.1%})" if row else ""


def _judge(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        goal = GOALS[row.outputs].get(row.budget_tokens)
        if row.contestant == OURS and goal is not None:
            verdict = "met" if row.exact >= goal else "MISSED"
            yield f"{OURS}, {row.outputs}, {row.budget_tokens} tokens: {row.exact:.1%}, goal {goal:.0%}: {verdict}"


def _describe_excess(runs: Sequence[Run]) -> Iterator[str]:
    """For each contestant that does not count tokens, how far it exceeds its budget."""
    for run in runs:
        ratios = [one.tokens / budget for budget, scored in run.scored.items() if budget for one in scored]
        over = sum(ratio > 1 for ratio in ratios)
        if over:
            yield f"{run.contestant}: over budget in {over} of {len(ratios)} cases, up to {max(ratios):.2f} times it"


def show_files(runs: Sequence[Run], contestants: Sequence[str]) -> None:
    """Print each file's facts kept, and those that are missing."""
    for run in runs:
        if run.contestant not in contestants:
            continue
        for budget, scored in run.scored.items():
            print(f"\n{run.contestant}, {f'{budget} tokens' if budget else 'by itself'}")
            for one in scored:
                mark = "*" if one.output.is_diagnostic else " "
                print(f"{mark} {sum(one.exact)}/{len(one.exact)} {one.output.name} ({one.tokens} tokens)")
                print("".join(f"      {fact}\n" for fact in one.missing()), end="")


def show_violations(runs: Sequence[Run]) -> int:
    """Print the laws that outputs broke; return how many."""
    found = [
        f"BROKEN: {run.contestant}, {budget} tokens, {one.output.name}: {violation}"
        for run in runs
        for budget, scored in run.scored.items()
        for one in scored
        for violation in one.violations
    ]
    print("\n" + ("\n".join(found) or "no law broken"), flush=True)
    return len(found)


def draw_plot(rows: Sequence[dict[str, object]], file: Path) -> None:
    """Facts kept by budget: one line for each contestant, all facts on the left, diagnostics on the right."""
    import matplotlib as mpl  # noqa: PLC0415 - of the bench extra: tables do without it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    read = [Row(**row) for row in rows]  # type: ignore[arg-type]
    names = list(dict.fromkeys(row.contestant for row in read))
    figure, axes = plt.subplots(1, len(GOALS), sharey=True, figsize=_FIGURE_INCHES, layout="constrained")
    for axis, (outputs, goals) in zip(axes, GOALS.items(), strict=True):
        for number, name in enumerate(names):
            mine = [r for r in read if r.contestant == name and r.outputs == outputs and r.budget_tokens != UNBOUND]
            axis.plot(
                [row.budget_tokens for row in mine],
                [row.exact * 100 for row in mine],
                color=mpl.colormaps["tab10"](number),
                linewidth=2.4 if name == OURS else 1.2,
                marker="o",
                markersize=4,
                label=name if outputs == ALL else None,
            )
        axis.scatter(list(goals), [goal * 100 for goal in goals.values()], marker="_", s=400, color="black", zorder=4)
        axis.set_xscale("log", base=2)
        budgets = sorted({row.budget_tokens for row in read if row.budget_tokens != UNBOUND})
        axis.set_xticks(budgets, [f"{budget:,}" for budget in budgets])
        axis.set_xlabel("budget, tokens")
        axis.set_title(f"{outputs} facts" if outputs == ALL else f"facts of {outputs}")
        axis.set_ylim(0, 100)
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("facts kept, % (bars: goals)")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(file, dpi=_DOTS_PER_INCH)
    plt.close(figure)
