"""The table of `trimtab stats`.

Law: it is imported only if a table is printed, because it needs rich.
"""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.account.statistics.sums import Sums
from proxy.cli.store.figures import Statistics
from proxy.state.catalogue.costs import NANODOLLARS
from proxy.telemetry.logs import escape

COLUMNS = ("requests", "original", "sent", "cached", "completion", "cost", "without", "saved", "share")
"""The columns after the name. The tokens are those of the model."""
WIDE_CHARS = 140
"""Width if the output is no terminal. Chosen: no column of usual figures is broken."""


def print_table(statistics: Statistics, console: Console | None = None) -> None:
    """Print the sums, and what is missing in them."""
    console = console or Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDE_CHARS)
    total = statistics.total
    if not total.requests and not total.summaries:
        console.print(f"no answered requests from {statistics.first_day} to {statistics.last_day}")
        return
    table = Table(title=f"{statistics.first_day} to {statistics.last_day} (UTC)", title_justify="left")
    table.add_column(statistics.by)
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for name, sums in statistics.groups:
        table.add_row(Text(escape(name)), *_write_row(sums))
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
    shown = write_dollars(saved)
    share = f"{cost / without:.3f}" if without else "-"
    return [
        *told,
        write_dollars(cost) + ("*" if lacks else ""),
        write_dollars(without),
        f"[red]{shown}[/red]" if saved < 0 else shown,
        share,
    ]


def write_dollars(nanodollars: int) -> str:
    """An amount of dollars to the cent, or with four decimals if it is below a dollar."""
    sign, amount = ("-" if nanodollars < 0 else ""), abs(nanodollars) / NANODOLLARS
    return f"{sign}${amount:,.2f}" if amount >= 1 or not amount else f"{sign}${amount:.4f}"


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
        lines.append(f"cost includes {total.summaries:,} summaries for {write_dollars(total.summary_nanodollars)}")
    if not total.is_unpriced:
        lines.append("without is what the same requests would have cost unchanged; it assumes that they were answered")
    return lines
