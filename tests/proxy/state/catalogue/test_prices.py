"""The prices of a model."""

from proxy.config.load import load_config
from proxy.state.catalogue.prices import PriceList, PriceSource, PriceTier, find_price_list
from rules.policy import Prices


def test_the_rules_get_ratios() -> None:
    """Whatever the unit is, they are relative to an ordinary prompt token."""
    cheap, dear = PriceTier(0, 2.0, 0.2, 2.5, 10.0), PriceTier(200_000, 4.0, 1.0, 5.0, 12.0)
    prices = PriceList((cheap, dear), PriceSource.CATALOGUE, is_in_dollars=True)
    assert prices.to_ratios() == prices.to_ratios(200_000) == Prices(1.0, 0.1, 5.0, 1.25)
    assert prices.at(200_001) is dear
    assert prices.to_ratios(200_001) == Prices(1.0, 0.25, 3.0, 1.25)


def test_free_tokens_have_the_default_ratios() -> None:
    """There is no ratio to a price of nothing."""
    assert PriceList((PriceTier(0, 0.0, 0.0, 0.0, 0.0),), PriceSource.CATALOGUE).to_ratios() == Prices()


def test_configured_prices_come_first() -> None:
    """The same configuration gives the same object, so that policies can be kept by it."""
    config = load_config("prices: {input: 2, cached_input: 0.5, output: 9}", environment={})
    first, second = (find_price_list(config, config.policy_for("m"), "m") for _ in range(2))
    assert first is second
    assert first.to_ratios() == Prices(1.0, 0.25, 4.5, 1.0)
    assert not first.is_in_dollars
