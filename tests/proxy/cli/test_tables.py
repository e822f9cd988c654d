"""What is shown in tables."""

import pytest

from trimtab.proxy.cli.tables import safe, write_dollars


def test_a_text_cannot_control_the_terminal() -> None:
    """Of several lines, only their ends stay."""
    assert safe("a\x1b[2J\nb").plain == "a\\x1b[2J\\nb"
    assert safe("a\x1b[2J\n\tb", lines=True).plain == "a\\x1b[2J\n    b"


@pytest.mark.parametrize(
    ("dollars", "text"), [(0, "$0.00"), (1234.567890123, "$1,234.57"), (0.012345678, "$0.0123"), (-2, "-$2.00")]
)
def test_amounts_below_a_dollar_have_four_decimals(dollars: float, text: str) -> None:
    assert write_dollars(dollars) == text
