"""The arithmetic of turns."""

import pytest

from bench.scale.gateways import BARE, WHOLE
from bench.scale.turns import Point, find_slope, make_point


def test_a_point_is_the_median_of_its_turns() -> None:
    assert make_point(WHOLE, 10, 5, [(1, 9), (3, 2), (2, 4)]) == Point(WHOLE, 10, 5, 2, 4)


def test_a_slope_is_what_a_megabyte_takes_beyond_the_bare_proxy() -> None:
    points = [
        point
        for megabytes in (0, 1, 4)
        for point in (
            Point(BARE, megabytes * 1_000_000, 5, 1 + 2 * megabytes, 0),
            Point(WHOLE, megabytes * 1_000_000, 5, 3 + 2.5 * megabytes, 0),
        )
    ]
    assert find_slope(points, WHOLE) == pytest.approx(0.5)
    assert find_slope(points, BARE) == 0
