"""What tokens cost: the parts are the whole."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.catalogue.prices import PriceList, PriceSource, PriceTier, Tokens, price

counts = st.integers(0, 10**6)
dollars = st.floats(0, 200)
tiers = st.builds(PriceTier, st.just(0), dollars, dollars, dollars, dollars)


@given(counts, st.none() | counts, st.none() | counts, st.none() | counts, tiers)
def test_the_parts_are_the_cost_of_the_usage_to_half_a_nanodollar_each(prompt, cached, written, completion, tier):
    """Whatever the upstream reports, no token of the prompt is charged for twice or not at all."""
    tokens = Tokens.of(prompt, cached, written, completion)
    cost = price(tokens, PriceList((tier,), PriceSource.CONFIGURED, is_in_dollars=True))
    assert tokens.prompt == prompt
    assert tokens.cached == min(cached or 0, prompt)
    parts = ((tokens.fresh, tier.input), (tokens.cached, tier.cached_input))
    parts += ((tokens.written, tier.cache_write), (tokens.completion, tier.output))
    exact = sum(1000 * count * Fraction(each) for count, each in parts)
    assert cost is not None
    assert abs(cost.total - exact) <= 3
    assert cost.total == cost.fresh + cost.cached + cost.written + cost.completion


def test_the_length_of_the_prompt_decides_the_prices() -> None:
    """All its tokens cost what the tier says."""
    short, long = PriceTier(0, 1, 0.1, 1, 4), PriceTier(1000, 2, 0.2, 2, 8)
    prices = PriceList((short, long), PriceSource.CATALOGUE, is_in_dollars=True)
    assert price(Tokens.of(1000, completion=1), prices).total == 1000 * 1000 + 4000
    assert price(Tokens.of(1001, completion=1), prices).total == 1001 * 2000 + 8000


def test_ratios_are_no_money() -> None:
    assert price(Tokens.of(1000), PriceList((PriceTier(0, 1, 0.1, 1, 4),), PriceSource.DEFAULT)) is None
