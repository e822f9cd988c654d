"""The speed of a streamed text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.http.relay import MIN_SECONDS, Pace


def _pace(*arrivals: tuple[int, float]) -> Pace:
    """The pace of chunks with this much text at these times."""
    texts = [arrival for index, arrival in enumerate(arrivals) if arrival[0] > max([0, *_chars(arrivals[:index])])]
    if not texts:
        return Pace()
    return Pace(texts[0][1], texts[-1][1], texts[0][0], texts[-1][0])


def _chars(arrivals: tuple[tuple[int, float], ...]) -> list[int]:
    return [chars for chars, _ in arrivals]


def test_the_rate_is_that_of_the_text_behind_the_first_chunk() -> None:
    """Half of 400 characters came within 2 seconds after the first half, so half of the 100 tokens did."""
    assert _pace((200, 10.0), (300, 11.0), (400, 12.0)).tokens_per_second(100) == 25.0


@pytest.mark.parametrize(
    ("arrivals", "tokens"),
    [
        ((), 7),
        (((0, 10.0),), 7),
        (((400, 10.0),), 100),
        (((200, 10.0), (400, 10.0)), 100),
        (((200, 10.0), (400, 10.0 + MIN_SECONDS / 2)), 100),
        (((200, 10.0), (400, 12.0)), 0),
        (((200, 10.0), (400, 12.0)), 2000),
    ],
    ids=["no chunk", "no text", "one chunk", "at once", "out of a buffer", "no tokens", "tokens that were not sent"],
)
def test_what_cannot_be_known_is_not_told(arrivals: tuple[tuple[int, float], ...], tokens: int) -> None:
    """The result is None, not a rate of zero or an enormous one."""
    assert _pace(*arrivals).tokens_per_second(tokens) is None


@given(
    st.lists(st.tuples(st.integers(0, 500), st.floats(0, 10, allow_nan=False)), max_size=20),
    st.integers(0, 20_000),
)
def test_no_rate_is_beyond_what_came(chunks: list[tuple[int, float]], tokens: int) -> None:
    """It is at most all tokens within the shortest time that is measured, and always positive."""
    arrivals, chars, now = [], 0, 100.0
    for more, later in chunks:
        chars, now = chars + more, now + later
        arrivals.append((chars, now))
    rate = _pace(*arrivals).tokens_per_second(tokens)

    assert rate is None or 0 < rate <= min(tokens, chars) / MIN_SECONDS
