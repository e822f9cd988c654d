"""The ratio of a model is learned from the upstream's usage reports."""

from dataclasses import replace

import pytest
from support.model_learning import NAME, TOKENS, Start, report

from trimtab.proxy.models.calibration import KEPT_SAMPLES, MIN_SAMPLE_TOKENS, WARM_UP_SAMPLES
from trimtab.proxy.models.records import Facts


@pytest.mark.parametrize(
    ("model", "ratio"),
    [("gpt-4o", 1.0), ("unheard-of", 1.0), ("openai/claude-3-opus", 1.2), ("claude-opus-4-7", 1.5), ("qwen3", 0.9928)],
)
async def test_a_model_begins_with_its_familys_ratio(start: Start, model: str, ratio: float) -> None:
    """Before the first report, also a model that was never looked up has it."""
    process, name = start(), replace(NAME, model=model)

    assert process.models.recall(name) == Facts(ratio)
    assert await process.look_up(name) == Facts(ratio)


@pytest.mark.parametrize(
    ("reported", "ratio", "changes"),
    [
        ([1.3] * 7, 1.0, 0),
        ([1.3] * 8, 1.3, 1),
        ([0.7] * 8, 0.7, 1),
        ([1.0, 1.1, 1.2, 1.3, 1.3, 1.4, 1.5, 9.0], 1.3, 1),
        ([1.015] * 8, 1.0, 0),
        ([0.985] * 8, 1.0, 0),
        ([1.03] * 8, 1.03, 1),
        ([0.5] * 8, 0.5, 1),
        ([0.49] * 20, 1.0, 0),
        ([1.6], 1.6, 1),
        ([1.6, 1.9], 1.6, 1),
        ([1.9, 1.6], 1.9, 1),
        ([9.0], 1.0, 0),
        ([1.5, 1.5], 1.0, 0),
        ([1.4, 1.6, 1.0], 1.0, 0),
        ([1.6, 1.6] + [1.2] * 6, 1.2, 2),
        ([4.0, 4.0, 4.0], 4.0, 1),
        ([12.0, 12.0], 6.0, 1),
        ([12.0] * 8, 6.0, 1),
        ([20.5] * 20, 1.0, 0),
        ([0.04] * 20, 1.0, 0),
        ([1.3] * 4 + [25.0] * 4 + [1.3] * 3, 1.0, 0),
    ],
)
async def test_the_warm_up_goes_by_the_median_of_eight(
    start: Start, reported: list[float], ratio: float, changes: int
) -> None:
    """A far higher report changes the ratio at once. A median that is close, or impossible reports, change nothing."""
    process = start()
    await process.look_up()

    assert await process.feed(reported) == pytest.approx(ratio, abs=1e-4)
    assert process.changes.get("calibration", 0) == changes


@pytest.mark.parametrize(
    ("tokens", "times", "ratio"),
    [(MIN_SAMPLE_TOKENS - 1, 2, 1.0), (MIN_SAMPLE_TOKENS, 2, 2.0), (600, 6, 1.0)],
)
async def test_small_requests_teach_little(start: Start, tokens: int, times: int, ratio: float) -> None:
    """In a small request, the frame of the messages weighs too much. A server may add a preamble of its own."""
    process = start()
    await process.look_up()
    for _ in range(2 if times == 6 else WARM_UP_SAMPLES):
        process.models.observe(NAME, report(tokens, times * tokens))

    await process.settle()
    assert process.models.recall(NAME).ratio == ratio


async def test_odd_figures_and_unknown_models_do_no_harm(start: Start) -> None:
    """For example: an empty report, an empty request, a model that was never looked up."""
    process = start()
    await process.feed([1.3] * WARM_UP_SAMPLES)
    await process.look_up()
    for estimated, reported in ((0, 5), (TOKENS, 0), (TOKENS, 10**9)):
        process.models.observe(NAME, report(estimated, reported))

    assert await process.feed([1.3] * (WARM_UP_SAMPLES - 1)) == 1.0
    assert process.changes == {}


async def test_a_change_is_logged_without_a_name_that_nobody_vouched_for(start: Start) -> None:
    """The log and the metric contain the label instead of the name."""
    process = start()
    await process.look_up(label="glob-*")
    await process.feed([1.3] * WARM_UP_SAMPLES)

    (line,) = process.log.lines
    known = {"event": "policy_changed", "model": "glob-*", "cause": "calibration", "before": 1.0, "after": 1.3}
    assert line == known
    assert NAME.model.encode() not in process.metrics.render()
    assert b'trimtab_policy_changes_total{cause="calibration",model="glob-*"} 1.0' in process.metrics.render()


@pytest.mark.parametrize(
    ("reported", "ratio"),
    [
        ([1.42] * 200, 1.3),
        ([1.44] * (KEPT_SAMPLES - 1), 1.3),
        ([1.44] * KEPT_SAMPLES, 1.44),
        ([1.16] * KEPT_SAMPLES, 1.16),
        ([5.0] * 20 + [1.3] * 200, 1.3),
        ([5.0, 0.5] * KEPT_SAMPLES, (5.0 + 0.5) / 2),
        ([1.3] * KEPT_SAMPLES + [1.5] * (KEPT_SAMPLES // 2 - 1), 1.3),
        ([1.3] * KEPT_SAMPLES + [1.5] * (KEPT_SAMPLES // 2 + 1), 1.5),
    ],
)
async def test_what_was_found_is_kept_until_the_median_of_many_is_far_off(
    start: Start, reported: list[float], ratio: float
) -> None:
    """The median of the last 64 must differ by 10 %: a change may move a cut, so it must be rare."""
    process = start()
    await process.look_up()
    await process.feed([1.3] * WARM_UP_SAMPLES)

    assert await process.feed(reported) == pytest.approx(ratio, abs=1e-4)
    assert process.changes == {"calibration": 1 + (ratio != 1.3)}


async def test_a_model_that_was_near_from_the_start_counts_as_calibrated(start: Start) -> None:
    """So no other process warms up again, and eight reports that are slightly off change nothing."""
    first = start()
    await first.look_up()
    await first.feed([1.01] * WARM_UP_SAMPLES)
    second = start()
    await second.look_up()

    assert await second.feed([1.09] * (2 * WARM_UP_SAMPLES)) == 1.0
    assert await first.feed([1.09] * (2 * WARM_UP_SAMPLES)) == 1.0
    assert (first.changes, second.changes) == ({}, {})


async def test_counts_that_stay_wrong_are_warned_of_once(start: Start) -> None:
    """The warning comes only after warm-up, because calibration corrects errors before."""
    process = start()
    await process.look_up(label="glob-*")
    await process.feed([0.7, 1.3] * (WARM_UP_SAMPLES // 2))
    assert process.log.lines == []
    await process.feed([0.7, 1.3] * KEPT_SAMPLES)

    (line,) = process.log.lines
    assert (line["event"], line["model"]) == ("estimates_off", "glob-*")
    assert line["mean_error"] == pytest.approx(0.3, abs=0.05)


async def test_counts_that_calibration_puts_right_are_not_warned_of(start: Start) -> None:
    """Neither a large error before calibration nor a single odd report causes a warning."""
    process = start()
    await process.look_up()
    await process.feed([4.0] * 20 + [8.0] + [4.1, 3.9] * 20)

    assert [line["event"] for line in process.log.lines] == ["policy_changed"]
