"""Reads the option --since of `trimtab stats`."""

import re
from datetime import date

from proxy.account.statistics.books import KEPT_DAYS, go_back

ALLOWED = "a number of days, hours or weeks (7d, 24h, 2w), or a date (2026-01-31)"
_PERIOD = re.compile(r"([1-9][0-9]{0,3})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}
"""Source: a day has 24 hours, a week seven days."""
HOURS_PER_DAY = 24  # source: a day has 24 hours


def find_first_day(since: str, today: str) -> str:
    """The first day of a period that ends today; days are in UTC. Raises ValueError, which says what is wrong.

    Sums are kept by day, so a period is rounded up to whole days, of which today is one.
    """
    period = _PERIOD.fullmatch(since.strip().lower())
    if period is None:
        return max(_read_day(since.strip(), today), go_back(today, KEPT_DAYS))
    hours = int(period[1]) * _HOURS[period[2]]
    days = -(-hours // HOURS_PER_DAY)
    return go_back(today, min(days - 1, KEPT_DAYS))


def _read_day(since: str, today: str) -> str:
    try:
        day = date.fromisoformat(since).isoformat()
    except ValueError:
        raise ValueError(ALLOWED) from None
    if day > today:
        message = f"{day} is in the future: today is {today} in UTC"
        raise ValueError(message)
    return day
