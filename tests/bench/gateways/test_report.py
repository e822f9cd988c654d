"""The arithmetic of the table of gateways."""

from dataclasses import replace

import pytest

from bench.gateways.report import describe_noise, find_median, find_ratio, read_cost_ms, read_cost_us, show
from bench.gateways.samples import Memory, Sample
from bench.gateways.targets import TARGETS, YARDSTICK

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


def test_a_round_without_the_yardstick_has_no_ratio() -> None:
    assert find_ratio(make(200, 400), make(100), read_cost_us) == 2
    assert find_ratio(make(200), [], read_cost_us) is None


def test_noise_is_told() -> None:
    disturbed = [replace(ONE, foreign=share) for share in (0.0, 0.02, 0.5)]
    assert describe_noise(disturbed) == (
        "Other programs used 0.02 of a core at the median and 0.50 at most; 1 of 3 samples were disturbed (over 0.1)."
    )


def test_what_is_not_there_is_a_dash_and_what_failed_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    samples = [*make(100, target=YARDSTICK), replace(make(250)[0], failed=3)]
    show(samples, [Memory("trimtab", 0, 1.2, 150.0, 200.4)])

    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    figures = [row for row in rows if row[0] == "trimtab, nothing to cut"]
    assert figures[0][1:4] == ["0.250 (3 failed)", "1,000 (3 failed)", "-"]
    assert figures[0][-2:] == ["150-200", "1.2"]
    assert figures[1][1:3] == ["2.50", "-"]


def test_every_target_has_a_name_of_its_own() -> None:
    names = [target.name for target in TARGETS]
    assert len(set(names)) == len(names)
    assert YARDSTICK in names
