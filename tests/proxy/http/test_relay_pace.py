"""The speed of a streamed text."""

import pytest

from trimtab.proxy.http.relay import MIN_SECONDS, Pace


def test_the_rate_is_that_of_the_text_behind_the_first_chunk() -> None:
    """Half of 400 characters came within 2 seconds after the first half, so half of the 100 tokens did."""
    assert Pace(10.0, 12.0, 200, 400).tokens_per_second(100) == 25.0


@pytest.mark.parametrize(
    ("pace", "tokens"),
    [
        (Pace(), 7),
        (Pace(10.0, 12.0, 400, 400), 100),
        (Pace(10.0, 10.0, 200, 400), 100),
        (Pace(10.0, 10.0 + MIN_SECONDS / 2, 200, 400), 100),
        (Pace(10.0, 12.0, 200, 400), 0),
        (Pace(10.0, 12.0, 200, 400), 2000),
    ],
    ids=["no text", "one chunk", "at once", "out of a buffer", "no tokens", "tokens that were not sent"],
)
def test_what_cannot_be_known_is_not_told(pace: Pace, tokens: int) -> None:
    """The result is None, not a rate of zero or an enormous one."""
    assert pace.tokens_per_second(tokens) is None
