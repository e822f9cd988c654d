"""Prices: the values that the rules get."""

from proxy.config.sections.prices import PricesConfig
from rules.policy import Prices


def test_the_rules_get_the_prices_of_the_file() -> None:
    """Each number has its own name. Without a file, the rules' own defaults apply."""
    assert PricesConfig(input=2, cached_input=0.5, output=9).to_prices() == Prices(2, 0.5, 9)
    assert PricesConfig().to_prices() == Prices()
