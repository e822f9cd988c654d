"""Tables that are Markdown too, as the commands print them."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

WIDTH = 400
"""Nothing is wrapped: a table goes into a page as it is."""


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A line that says what it is, and the table; the first column is text, the others are figures."""
    table = Table(box=box.MARKDOWN)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    print(f"\n{title}\n")
    console = Console(width=WIDTH, no_color=True)
    with console.capture() as captured:
        console.print(table, end="")
    # Console pads lines with blanks at the end, and puts an empty one before and after.
    print("\n".join(line.rstrip() for line in captured.get().strip().splitlines()), flush=True)
