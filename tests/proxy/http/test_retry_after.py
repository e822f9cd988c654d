"""The time that a busy server names is read in every form that servers use."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from multidict import CIMultiDict

from proxy.http.retry_after import read_retry_after

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "20"}, 20.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": format_datetime(datetime.fromtimestamp(NOW + 90, UTC), usegmt=True)}, 90.0),
        ({"Retry-After": format_datetime(datetime.fromtimestamp(NOW - 90, UTC), usegmt=True)}, 0.0),
        ({"Retry-After": "20", "retry-after-ms": "1500"}, 1.5),
        *(
            ({"Retry-After": value}, None)
            for value in ("", "-1", "nan", "inf", "soon", "Fri, 99 Nov 2023 99:99:99 GMT")
        ),
        ({}, None),
    ],
)
def test_the_time_is_in_seconds_from_now(headers: dict[str, str], seconds: float | None) -> None:
    """A date that has passed is no wait; an invalid value is none."""
    assert read_retry_after(CIMultiDict(headers), NOW) == seconds
