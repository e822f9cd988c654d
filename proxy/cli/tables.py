"""How several commands show figures and texts: tables, money, names that others have chosen.

Law: `serve` imports none of it, because it needs rich. Text of others cannot control the terminal.
"""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab.proxy.catalogue.prices import NANODOLLARS
from trimtab.proxy.telemetry.logs import escape

WIDE_CHARS = 140
"""Width if the output is no terminal. Chosen: no column of usual figures is broken."""


def make_console(width_chars: int = WIDE_CHARS) -> Console:
    """The console to print to; at least so wide if it is no terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, width_chars)
    return console


def add_figures(table: Table, names: Iterable[str]) -> None:
    """Add columns of figures, which are not broken."""
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)


def safe(text: str, style: str = "", *, lines: bool = False) -> Text:
    """The text without what could control a terminal. lines: it may have several."""
    if not lines:
        return Text(escape(text), style)
    return Text("\n".join(escape(line.expandtabs(4)) for line in text.split("\n")), style)


def mask(text: str) -> str:
    """A text of a server, without characters that could control a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def write_dollars(dollars: float) -> str:
    """An amount to the cent, or with four decimals if it is below a dollar."""
    sign, amount = ("-" if dollars < 0 else ""), abs(dollars)
    return f"{sign}${amount:,.2f}" if amount >= 1 or not amount else f"{sign}${amount:.4f}"


def write_cost(nanodollars: int) -> str:
    return write_dollars(nanodollars / NANODOLLARS)
