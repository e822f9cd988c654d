"""What is shown in tables."""

from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

from trimtab.proxy.account.books import Place, Sums
from trimtab.proxy.cli.doctor import SPARE, make_table
from trimtab.proxy.cli.stats import COLUMNS, gather, print_table
from trimtab.proxy.cli.tables import add_figures, print_fitting, safe, write_dollars, write_short

WIDTHS = (60, 100)
LARGE = Sums(
    requests=98_765,
    original_tokens=9_876_543_210,
    sent_tokens=1_876_543_210,
    cached_tokens=876_543_210,
    completion_tokens=76_543_210,
    fresh_nanodollars=4321 * 10**9,
    without_nanodollars=9876 * 10**9,
)


def test_a_text_cannot_control_the_terminal() -> None:
    """Of several lines, only their ends stay."""
    assert safe("a\x1b[2J\nb").plain == "a\\x1b[2J\\nb"
    assert safe("a\x1b[2J\n\tb", lines=True).plain == "a\\x1b[2J\n    b"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (9999, "9,999"),
        (10_000, "10.0k"),
        (123_456, "123k"),
        (999_499, "999k"),
        (999_500, "1.00M"),
        (4_560_000, "4.56M"),
        (9_876_543_210, "9.88G"),
    ],
)
def test_large_figures_are_short(number: int, text: str) -> None:
    """As on the dashboard."""
    assert write_short(number) == text


@pytest.mark.parametrize(
    ("dollars", "text"), [(0, "$0.00"), (1234.567890123, "$1,234.57"), (0.012345678, "$0.0123"), (-2, "-$2.00")]
)
def test_amounts_below_a_dollar_have_four_decimals(dollars: float, text: str) -> None:
    assert write_dollars(dollars) == text


def render(width: int, table: Table | None = None, spare: tuple[str, ...] = (), *, tty: bool = True) -> str:
    """What a table looks like on a terminal; without one, that of `stats` with large figures."""
    screen = StringIO()
    console = Console(file=screen, width=width, force_terminal=tty, color_system=None)
    if table is None:
        days = {Place("2026-11-23", "claude-sonnet-4-5-20260929", "-"): LARGE}
        print_table(gather(days, "2026-11-17", "2026-11-23", "model"), console)
    else:
        print_fitting(console, table, spare)
    return screen.getvalue()


def read_table(text: str) -> list[str]:
    """The lines of the table."""
    return [line for line in text.splitlines() if line[:1] in "┃│┏┡├└"]


@pytest.mark.parametrize("width", WIDTHS)
def test_figures_of_cost_stay_on_a_narrow_terminal(width: int) -> None:
    """The model and what it saved are there at every width, no line is too long, and what is left out is named."""
    text = render(width)
    lines = read_table(text)
    assert all(len(line) <= width for line in lines)
    assert "saved" in lines[1]
    names = "".join(line[1:].partition("│")[0].strip() for line in lines[3:])
    assert names.startswith("claude-sonnet-4-5-20260929")
    told = text.partition("because the terminal is narrow: ")[2].partition("without is")[0]
    left = " ".join(told.split()).split(", ") if told else []
    shown = [name for name in COLUMNS if name in lines[1]]
    assert sorted((*left, *shown)) == sorted(COLUMNS)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_table_of_prices_keeps_the_model(width: int) -> None:
    """And no line is too long."""
    table = make_table()
    table.add_row(*["a-long-name-of-a-model-2026"] * 4, *["1,234,567"] * 5)
    text = render(width, table, SPARE)
    assert "model" in text
    assert all(len(line) <= width for line in read_table(text))


def test_a_wider_terminal_shows_more() -> None:
    """And without a terminal nothing is left out: a program may read it."""
    counts = [sum(name in read_table(render(width))[1] for name in COLUMNS) for width in (*WIDTHS, 200)]
    assert counts == sorted(set(counts))
    assert counts[-1] == len(COLUMNS)
    piped = render(60, tty=False)
    assert all(name in piped for name in COLUMNS)
    assert "narrow" not in piped


def test_no_figure_is_cut_if_nothing_is_spare() -> None:
    """The lines are longer than the terminal instead."""
    table = Table()
    table.add_column("name")
    add_figures(table, ("one", "two"))
    table.add_row("x", *["1,234,567,890,123"] * 2)
    assert render(30, table).count("1,234,567,890,123") == 2
    assert "narrow" not in render(30, table)
