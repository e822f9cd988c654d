"""How long a busy server asks its clients to wait.

Law: pure. A value that cannot be read counts as absent.
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite

BUSY = frozenset({429, 503, 529})
"""Statuses after which a later attempt may succeed. Source: RFC 6585, RFC 9110; 529 is Anthropic's for overload."""
_MILLISECONDS = "retry-after-ms"
"""Source: Azure OpenAI, which OpenAI's SDKs read first."""


def read_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds from `now`, which are seconds since 1970; None if no valid time is named.

    Source: RFC 9110 section 10.2.3 (seconds, or a date).
    """
    milliseconds = _read_number(headers.get(_MILLISECONDS))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _read_number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        return max(parsedate_to_datetime(value).timestamp() - now, 0.0)
    except (ValueError, OverflowError):
        return None


def _read_number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if isfinite(number) and number >= 0 else None
