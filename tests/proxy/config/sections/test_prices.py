"""Prices: the keys and their defaults."""

from proxy.config.sections.prices import PricesConfig


def test_the_defaults() -> None:
    """Reading the cache costs a tenth, and a completion four times a prompt."""
    prices = PricesConfig()
    assert (prices.input, prices.cached_input, prices.output) == (1, 0.1, 4)
