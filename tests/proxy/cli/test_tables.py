"""What is shown in tables."""

from trimtab.proxy.cli.tables import safe


def test_a_text_cannot_control_the_terminal() -> None:
    """Of several lines, only their ends stay."""
    assert safe("a\x1b[2J\nb").plain == "a\\x1b[2J\\nb"
    assert safe("a\x1b[2J\n\tb", lines=True).plain == "a\\x1b[2J\n    b"
