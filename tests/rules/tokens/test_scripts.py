"""Kinds of text that a model's vocabulary may count otherwise than ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.compaction.pool import load_compactor
from trimtab.rules.tokens.families import SAMPLE_TOKENS, SILENT, Reading, find_family, read_costs
from trimtab.rules.tokens.scripts import EVEN, SAMPLES, Weights, fit_weights, weigh

OURS = SAMPLE_TOKENS["o200k_base"]


@pytest.mark.parametrize("vocabulary", SAMPLE_TOKENS)
def test_the_samples_have_the_tokens_that_are_written_down(vocabulary: str) -> None:
    count = load_compactor("m", vocabulary=vocabulary).count
    assert tuple(map(count, SAMPLES)) == SAMPLE_TOKENS[vocabulary]


def test_a_server_that_counts_as_we_do_changes_nothing() -> None:
    assert fit_weights(OURS, OURS) == (1.0, EVEN)
    assert weigh(len, EVEN) is len


def test_with_the_weights_of_a_server_its_own_counts_of_the_samples_come_out() -> None:
    """Here it needs a tenth more for plain text, twice as much for numbers and names, and 2.4 times for Chinese."""
    theirs = (round(1.1 * OURS[0]), 2 * OURS[1], round(2.4 * OURS[2]))
    ratio, weights = fit_weights(theirs, OURS)
    known = dict(zip(SAMPLES, OURS, strict=True))
    counted = [ratio * weigh(known.__getitem__, weights)(sample) for sample in SAMPLES]
    assert counted[1:] == pytest.approx(theirs[1:], rel=0.02)
    assert counted[0] == pytest.approx(theirs[0], rel=0.01)


def test_each_kind_weighs_by_its_own_characters() -> None:
    """Digits and underscores, and the characters from kana to Hangul; nothing else, also no accents and no emoji."""
    count = weigh(lambda _: 100, Weights(code=1.0, dense=10.0))
    assert count("plain, é ü ß and 😀!") == 100
    assert count("row_17") == 103
    assert count("桥かの한!") == 140
    assert count("第1章") == 121


@given(st.text(st.characters(exclude_categories=()), max_size=200), st.floats(-1, 8), st.floats(-1, 8))
def test_every_text_has_a_count(text: str, code: float, dense: float) -> None:
    assert weigh(len, Weights(code, dense))(text) >= 0


@given(st.tuples(*(st.integers(1, 100_000),) * 3))
def test_no_answer_of_a_server_makes_a_weight_large(theirs: tuple[int, ...]) -> None:
    assert all(-0.25 <= weight <= 4 for weight in fit_weights(theirs, OURS)[1])


def test_a_server_that_says_nothing_is_counted_by_its_family() -> None:
    assert read_costs("gpt-4o", "o200k_base", SILENT) == find_family("gpt-4o").costs
    assert SILENT.find_ratio("o200k_base") is None


def test_what_the_template_adds_is_counted_in_our_tokens() -> None:
    """The server has twice as many tokens for the same text: a frame of 12 is 6 of ours, 2 above the usual frame."""
    reading = Reading(drops_tools=True, samples=tuple(2 * tokens for tokens in OURS), priming=8, frame=12, unspoken=40)
    costs = read_costs("m", "o200k_base", reading)
    assert (costs.priming_tokens, costs.frame_tokens, costs.unspoken_tokens) == (4, 2, 20)
    assert (costs.drops_tools, costs.weights) == (True, EVEN)
    assert reading.find_ratio("o200k_base") == 2
