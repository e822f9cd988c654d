"""The table of `trimtab stats`.

Law: it is imported only if a table is printed, because it needs rich.
"""

from rich.console import Console
from rich.table import Table

from proxy.account.statistics.books import Sums
from proxy.catalogue.prices import NANODOLLARS
from proxy.cli.store.figures import Statistics
from proxy.cli.tables import add_figures, make_console, safe, write_dollars

COLUMNS = ("requests", "original", "sent", "cached", "completion", "cost", "without", "saved", "share")
"""The columns after the name. The tokens are those of the model."""


def print_table(statistics: Statistics, console: Console | None = None) -> None:
    """Print the sums, and what is missing in them."""
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
    console.print(table)
    for line in _list_gaps(total):
        console.print(line, highlight=False, markup=False)


def _write_row(sums: Sums) -> list[str]:
    counts = (sums.requests, sums.original_tokens, sums.sent_tokens, sums.cached_tokens, sums.completion_tokens)
    cost, without, saved = sums.cost_nanodollars, sums.without_nanodollars, sums.saved_nanodollars
    lacks = sums.unpriced_requests + sums.unpriced_summaries
    told = [f"{count:,}" for count in counts]
    if sums.is_unpriced:  # nothing is known of their cost, which is not nothing
        return [*told, *["-"] * 4]
    shown = _write_cost(saved)
    share = f"{cost / without:.3f}" if without else "-"
    return [
        *told,
        _write_cost(cost) + ("*" if lacks else ""),
        _write_cost(without),
        f"[red]{shown}[/red]" if saved < 0 else shown,
        share,
    ]


def _write_cost(nanodollars: int) -> str:
    return write_dollars(nanodollars / NANODOLLARS)


def _list_gaps(total: Sums) -> list[str]:
    """Sentences about what the sums lack or estimate."""
    lines = []
    if total.is_unpriced and not total.summaries - total.unpriced_summaries:
        lines.append("- means that no request has a known price in dollars; see prices in the configuration")
    elif total.unpriced_requests or total.unpriced_summaries:
        of_requests = f"{total.unpriced_requests:,} of {total.requests:,} requests"
        of_summaries = f"{total.unpriced_summaries:,} of {total.summaries:,} summaries"
        parts = ((total.unpriced_requests, of_requests), (total.unpriced_summaries, of_summaries))
        lacking = " and ".join(text for number, text in parts if number)
        lines.append(
            f"* {lacking} have no known price in dollars and are not in the money; see prices in the configuration"
        )
    if total.estimated_requests:
        lines.append(f"{total.estimated_requests:,} requests are estimated, because the upstream reported no usage")
    if total.summaries > total.unpriced_summaries:
        lines.append(f"cost includes {total.summaries:,} summaries for {_write_cost(total.summary_nanodollars)}")
    if not total.is_unpriced:
        lines.append("without is what the same requests would have cost unchanged; it assumes that they were answered")
    return lines
