"""The table: a loss is shown as one, and what is missing is said."""

from io import StringIO

from rich.console import Console

from trimtab.proxy.account.statistics.books import Place, Sums
from trimtab.proxy.cli.stats import gather, print_table

LOSS = Sums(
    requests=3,
    unpriced_requests=1,
    estimated_requests=2,
    original_tokens=12_345,
    summaries=1,
    fresh_nanodollars=2 * 10**9,
    summary_nanodollars=10**9,
    without_nanodollars=2 * 10**9,
)


def _print(sums: Sums, **options) -> str:
    written = StringIO()
    shown = gather({Place("2026-11-23", "gpt-[4]*", "-"): sums}, "2026-11-17", "2026-11-23", "model")
    print_table(shown, Console(file=written, width=160, **options))
    return written.getvalue()


def test_a_loss_has_a_minus_and_is_red_on_a_terminal() -> None:
    assert "-$1.00" in _print(LOSS)
    assert "\x1b[31m-$1.00" in _print(LOSS, force_terminal=True, color_system="standard")
    gain = LOSS + Sums(without_nanodollars=5 * 10**9)
    assert "\x1b[31m" not in _print(gain, force_terminal=True, color_system="standard")


def test_what_is_missing_is_said() -> None:
    text = _print(LOSS)
    for told in ("gpt-[4]*", "12.3k", "1.500", "1 of 3 requests", "2 requests are estimated", "1 answered call"):
        assert told in text


def test_what_has_no_price_is_not_free() -> None:
    """A sum that lacks a part is marked; one of which nothing is known has no amount."""
    assert "$3.00*" in _print(LOSS)
    unknown = _print(Sums(requests=2, unpriced_requests=2, original_tokens=10))
    row = next(line for line in unknown.splitlines() if "gpt-[4]*" in line)
    assert "$" not in row
    assert "- means that no request has a known price" in unknown
    assert "0 of 0" not in unknown


def test_a_name_cannot_control_the_terminal() -> None:
    """The store may be damaged, or another program's."""
    written = StringIO()
    shown = gather({Place("2026-11-23", "\x1b[2J[red]m", "-"): LOSS}, "2026-11-17", "2026-11-23", "model")
    print_table(shown, Console(file=written, width=160, force_terminal=True))
    assert "\x1b[2J" not in written.getvalue()
    assert "[red]m" in written.getvalue()
