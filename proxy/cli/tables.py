"""How several commands show figures and texts: tables, money, names that others have chosen.

Law: `serve` imports none of it, because it needs rich. Text of others cannot control the terminal.
"""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab.proxy.catalogue.prices import NANODOLLARS
from trimtab.proxy.telemetry.logs import escape

WIDE_CHARS = 140  # Width if the output is no terminal. Chosen: no column of usual figures is broken.
EDGE_CHARS = 3  # Space and line around a column. Source: rich's default box. It has one more line at the end.
FOLDED_CHARS = 12  # Width to which the first column and columns of text may shrink. Chosen: a name takes few lines.


def make_console(width_chars: int = WIDE_CHARS) -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, width_chars)
    return console


def add_figures(table: Table, names: Iterable[str]) -> None:
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)


def print_fitting(console: Console, table: Table, spare: Iterable[str] = ()) -> None:
    """Print a table. On a terminal that is too narrow for it, columns are left out and named below.

    spare: the headers of those that may be left out, the least important first; a header twice is both columns. The
    first column always stays; it and columns that fold may shrink. What still does not fit makes the lines longer than
    the terminal, and no figure is cut.
    """
    left = []
    for name in spare if console.is_terminal else ():
        if _find_width(console, table) <= console.width:
            break
        kept = [column for column in table.columns if str(column.header) != name]
        if len(kept) < len(table.columns):
            left.append(name)
            whole, table = table, Table(*kept, title=table.title, title_justify=table.title_justify, box=table.box)
            table.pad_edge, table.show_lines, table.rows = whole.pad_edge, whole.show_lines, whole.rows
    for number, column in enumerate(table.columns):
        if number == 0 or not column.no_wrap:
            column.overflow = "fold"
    usual_chars, console.width = console.width, max(console.width, _find_width(console, table))
    console.print(table)
    console.width = usual_chars
    if left:
        console.print(f"not shown, because the terminal is narrow: {', '.join(left)}", highlight=False, markup=False)


def _find_width(console: Console, table: Table) -> int:
    """The least width without a broken figure. What folds counts with a few characters only."""
    needed_chars = EDGE_CHARS * len(table.columns) + 1 if table.box else 2 * (len(table.columns) - 1)
    for number, column in enumerate(table.columns):
        texts = (column.header, *column.cells)
        chars = max(column.min_width or 0, *(console.measure(text).maximum for text in texts))
        folds = number == 0 or not column.no_wrap
        needed_chars += min(chars, max(FOLDED_CHARS, column.min_width or 0)) if folds else chars
    return needed_chars


def safe(text: str, style: str = "", *, lines: bool = False) -> Text:
    """The text without what could control a terminal. lines: it may have several."""
    if not lines:
        return Text(escape(text), style)
    return Text("\n".join(escape(line.expandtabs(4)) for line in text.split("\n")), style)


def write_short(number: int) -> str:
    """A figure for people: 9,876, 12.3k, 4.56M."""
    for sign, unit in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= unit * (10 if unit == 1000 else 1) or (unit > 1000 and number >= unit * 0.9995):
            shown = number / unit
            return f"{shown:.{2 if shown < 9.995 else 1 if shown < 99.95 else 0}f}{sign}"
    return f"{number:,}"


def write_dollars(dollars: float) -> str:
    """An amount to the cent, or with four decimals if it is below a dollar."""
    sign, amount = ("-" if dollars < 0 else ""), abs(dollars)
    return f"{sign}${amount:,.2f}" if amount >= 1 or not amount else f"{sign}${amount:.4f}"


def write_cost(nanodollars: int) -> str:
    return write_dollars(nanodollars / NANODOLLARS)
