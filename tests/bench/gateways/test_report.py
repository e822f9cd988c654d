"""The arithmetic of the table of gateways."""

from dataclasses import replace

from bench.gateways.report import find_median, find_ratio, read_cost_ms, read_cost_us
from bench.gateways.samples import Sample, take_cleanest

ONE = Sample("trimtab", "small", 0, 100, 0, 1000.0, 500.0, 0.5, 0.6, 0.5, 0.0)


def make(*costs_us: float | None, target: str = "trimtab") -> list[Sample]:
    return [replace(ONE, target=target, round=number, cost_us=cost) for number, cost in enumerate(costs_us)]


def test_a_figure_is_the_median_of_the_rounds_that_have_it() -> None:
    assert find_median(make(300, None, 100, 200), read_cost_ms) == 0.2
    assert find_median(make(None), read_cost_ms) is None


def test_a_ratio_is_made_within_one_round() -> None:
    """If a machine is slow for one round, it is slow for both targets."""
    slow_in_one = make(200, 2000, 300)
    assert find_ratio(slow_in_one, make(100, 1000, 100), read_cost_us) == 2


def test_of_disturbed_samples_the_cleanest_counts() -> None:
    shares = iter((0.9, 0.3, 0.5, 0.0))
    assert take_cleanest(lambda: replace(ONE, foreign=next(shares)), 3).foreign == 0.3
    assert list(shares) == [0.0]
