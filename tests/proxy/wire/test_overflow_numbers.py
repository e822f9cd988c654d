"""Numbers are read from any clause of a text."""

import pytest

from trimtab.proxy.wire.overflow import MAX_NUMBER, Numbers, read_number, read_numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", (None, None, None, None, None)),
        ("limit: 184915 + 20000 > 204648", (204_648, 204_915, 184_915, 20_000, None)),
        ("requested 4120 tokens (3120 in the messages, 1000 in the completion)", (None, 4120, 3120, 1000, None)),
        ("your prompt contains at least 8193 input tokens", (None, 8193, 8193, None, None)),
        ("prompt too long; exceeded max context length by 100918 tokens", (None, None, None, None, 100_918)),
        ("9,001 tokens of 8_192", (8192, 9001, None, None, None)),
        ("300K tokens > 256K maximum", (None, None, None, None, None)),
        ("maximum context length is 0 tokens", (None, None, None, None, None)),
        (f"maximum context length is {MAX_NUMBER} tokens", (None, None, None, None, None)),
    ],
)  # fmt: skip
def test_what_is_told_is_read_and_nothing_else(text: str, numbers: tuple[int | None, ...]) -> None:
    assert read_numbers(text) == Numbers(*numbers)


def test_separators_of_thousands_are_no_part_of_a_number() -> None:
    assert read_number("5,958_968") == 5_958_968
