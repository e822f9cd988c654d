"""What the tables of several commands share.

Law: it is imported only if a table is printed, because it needs rich. Text of others cannot control the terminal.
"""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

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
