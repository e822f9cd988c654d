"""Waters and budgets by economy and window: one curve without jumps, and more memory for a higher price."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from trimtab.rules.economy import Economy, find_budgets

WINDOWS = st.integers(1024, 10_000_000) | st.floats(10, 23).map(lambda power: int(2**power))
SAVING = (Economy.CAREFUL, Economy.BALANCED, Economy.FRUGAL)
economies = pytest.mark.parametrize("economy", Economy)


@economies
@given(window_tokens=WINDOWS)
def test_low_water_is_well_below_high_water(economy: Economy, window_tokens: int) -> None:
    """Otherwise a cut would leave almost as much as before, and there would be one at every request."""
    budgets = find_budgets(economy, window_tokens)
    assert 0 < budgets.low_water <= 0.6 * budgets.high_water
    assert budgets.high_water < 1


@economies
@given(window_tokens=WINDOWS)
def test_what_a_cut_carries_leaves_it_worth_making(economy: Economy, window_tokens: int) -> None:
    """Names, and a summary of at most half of low water.

    A cut at high water frees at least a quarter of what lies between the waters, which is what any cut must free.
    """
    budgets = find_budgets(economy, window_tokens)
    carried = budgets.low_water * (0.5 + budgets.anchor_share)
    assert 0 < carried <= budgets.high_water - (budgets.high_water - budgets.low_water) / 4


def test_a_session_that_fits_costs_no_more_than_its_economy_promises() -> None:
    """Source: issue 36. `careful` promises 0.02 and `frugal` 0.12; the difference to these bounds is measured."""
    assert [find_budgets(economy, 32_000).risk_share for economy in SAVING] == [0.04, 0.07, 0.115]


@given(window_tokens=WINDOWS)
def test_who_pays_more_keeps_more(window_tokens: int) -> None:
    """The law holds for both waters and for the tokens that are left for names, at every window."""
    for more, less in pairwise(find_budgets(economy, window_tokens) for economy in SAVING):
        assert more.high_water >= less.high_water
        assert more.low_water >= less.low_water
        assert more.high_water + more.low_water > less.high_water + less.low_water


@economies
@given(window_tokens=WINDOWS, more_tokens=st.integers(0, 1_000_000))
def test_a_larger_window_has_lower_waters_and_longer_summaries(
    economy: Economy, window_tokens: int, more_tokens: int
) -> None:
    """The waters are lower as shares. In tokens, each is as large or larger."""
    small, large = find_budgets(economy, window_tokens), find_budgets(economy, window_tokens + more_tokens)
    assert large.high_water <= small.high_water
    assert large.low_water <= small.low_water
    assert large.summary_tokens >= small.summary_tokens


@economies
@given(window_tokens=st.integers(1024, 2_000_000))
def test_a_percent_more_window_moves_nothing_by_more_than_a_hundredth(economy: Economy, window_tokens: int) -> None:
    """So a context window that was learned slightly wrong costs little."""
    here, there = find_budgets(economy, window_tokens), find_budgets(economy, window_tokens + window_tokens // 100)
    assert abs(here.high_water - there.high_water) <= 0.01
    assert abs(here.low_water - there.low_water) <= 0.01
    assert abs(here.anchor_share - there.anchor_share) <= 0.01
    assert 0 <= there.summary_tokens - here.summary_tokens <= 0.02 * here.summary_tokens


@economies
@given(window_tokens=st.integers(0, 8_000))
def test_below_the_curve_its_first_point_holds(economy: Economy, window_tokens: int) -> None:
    """Above the curve, its last point counts. Only a summary is shorter: its tokens are read again after each cut."""
    here, first = find_budgets(economy, window_tokens), find_budgets(economy, 8_000)
    assert replace(here, summary_tokens=first.summary_tokens) == first
    assert here.summary_tokens <= window_tokens * 7 / 64 + 0.5
    assert find_budgets(economy, 1_000_000 + window_tokens) == find_budgets(economy, 1_000_000)


@economies
def test_shares_have_three_decimals(economy: Economy) -> None:
    """So they can be written into a configuration as they are."""
    here = find_budgets(economy, 12_345)
    assert all(share == round(share, 3) for share in (here.high_water, here.low_water, here.anchor_share))


def test_a_summary_has_what_was_asked_for() -> None:
    """A small window has less for it, so that what a cut writes is read in few seconds."""
    windows = (4_096, 8_192, 16_000, 32_000, 128_000, 1_000_000)
    summaries = [find_budgets(Economy.BALANCED, window).summary_tokens for window in windows]
    assert summaries == [384, 896, 1_500, 1_500, 4_000, 8_000]
