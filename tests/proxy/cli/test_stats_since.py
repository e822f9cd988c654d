"""The option --since: what it takes, and the first day that it means."""

import pytest

from trimtab.proxy.cli.stats import find_first_day

TODAY = "2026-11-23"


@pytest.mark.parametrize(
    ("since", "first_day"),
    [
        ("7d", "2026-11-17"),
        ("1d", TODAY),
        ("24h", TODAY),
        ("25h", "2026-11-22"),
        ("2w", "2026-11-10"),
        (" 7D ", "2026-11-17"),
        ("2026-11-01", "2026-11-01"),
        ("9999d", "2025-11-22"),
        ("1999-01-01", "2025-11-22"),
    ],
)
def test_a_period_ends_today_and_is_a_year_at_most(since, first_day) -> None:
    assert find_first_day(since, TODAY) == first_day


@pytest.mark.parametrize("since", ["", "0d", "7", "d", "7m", "-7d", "2026-13-01", "yesterday", "7d7d", "1.5d"])
def test_anything_else_is_refused_with_what_is_allowed(since) -> None:
    with pytest.raises(ValueError, match=r"7d, 24h, 2w"):
        find_first_day(since, TODAY)


@pytest.mark.parametrize("since", ["2026-11-24", "2027-01-01"])
def test_a_day_to_come_is_refused_with_the_day_that_it_is(since) -> None:
    """Days are in UTC, so a user's own date may be a day ahead."""
    with pytest.raises(ValueError, match=f"{since} is in the future: today is {TODAY} in UTC"):
        find_first_day(since, TODAY)
    assert find_first_day(TODAY, TODAY) == TODAY
