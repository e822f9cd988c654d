"""The points of a picture."""

import itertools

from trimtab.proxy.cli.records.course import MAX_POINTS, Series


def test_however_many_requests_there_are_the_points_are_bounded_and_even() -> None:
    series = Series()
    for _ in range(5 * MAX_POINTS):
        if series.begin():
            series.add(1, {}, {})
    numbers = [point.number for point in series.points]
    assert MAX_POINTS // 4 < len(numbers) < MAX_POINTS
    assert len({after - before for before, after in itertools.pairwise(numbers)}) == 1


def test_each_of_a_few_requests_is_a_point() -> None:
    series = Series()
    for tokens in (5, 6, 7):
        assert series.begin()
        series.add(tokens, {"recorded": tokens}, {})
    assert [(point.number, point.original_tokens) for point in series.points] == [(1, 5), (2, 6), (3, 7)]
