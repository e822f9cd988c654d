"""The pause before a dead worker is started again."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.server.workers.restarts import HEALTHY_SECONDS, MAX_PAUSE_SECONDS, Restarts


def test_pauses_grow_with_ends_that_come_soon() -> None:
    """The pause after the first end is zero."""
    restarts = Restarts()
    assert [restarts.note(0.1) for _ in range(9)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]


@given(st.lists(st.floats(0, 100), max_size=30))
def test_one_that_has_worked_is_back_at_once(lives: list[float]) -> None:
    """Earlier ends do not count. No pause is longer than the maximum."""
    restarts = Restarts()
    assert all(0 <= restarts.note(seconds) <= MAX_PAUSE_SECONDS for seconds in lives)
    assert restarts.note(HEALTHY_SECONDS) == 0
    assert restarts.total == len(lives) + 1
