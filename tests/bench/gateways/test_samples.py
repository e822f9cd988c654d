"""Which of several samples counts."""

from collections.abc import Iterator
from dataclasses import replace

from bench.gateways.samples import Sample, take_cleanest

ONE = Sample("trimtab", "small", 0, 100, 0, 1000.0, 500.0, 0.5, 0.6, 0.5, 0.0)


def take_from(shares: Iterator[float]) -> Sample:
    return replace(ONE, foreign=next(shares))


def test_a_clean_sample_is_not_taken_again() -> None:
    shares = iter((0.1, 0.0))
    assert take_cleanest(lambda: take_from(shares), 3).foreign == 0.1
    assert list(shares) == [0.0]


def test_of_disturbed_samples_the_cleanest_counts_and_says_so() -> None:
    shares = iter((0.9, 0.3, 0.5, 0.0))
    assert take_cleanest(lambda: take_from(shares), 3).foreign == 0.3
    assert list(shares) == [0.0]
