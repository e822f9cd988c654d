"""What a model's tokens cost.

Law: prices are those of one token. In dollars they are per million tokens; else only the ratios between them count.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from proxy.config.policies.policy import PolicyConfig
from proxy.config.schema import Config, PricesConfig
from rules.policy import Prices


class PriceSource(StrEnum):
    """Where prices come from: the configuration, the catalogue, a server of the user's own, or nowhere."""

    CONFIGURED = "configured"
    CATALOGUE = "catalogue"
    LOCAL = "local"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class PriceTier:
    """The prices of a prompt with more than `above_tokens` tokens, and of its completion.

    cached_input: a prompt token that the upstream reads from its cache.
    cache_write: a prompt token that it writes into its cache. The price of an ordinary prompt token, `input`, if
        writing costs nothing more.
    """

    above_tokens: int
    input: float
    cached_input: float
    cache_write: float
    output: float


@dataclass(frozen=True, slots=True)
class PriceList:
    """The prices of one model at one upstream.

    tiers: by the length of the prompt, the shortest first. All tokens of a prompt cost what its tier says.
    is_in_dollars: whether the prices are US dollars for a million tokens. Else money cannot be told from them.
    """

    tiers: tuple[PriceTier, ...]
    source: PriceSource
    is_in_dollars: bool = False

    def at(self, prompt_tokens: int) -> PriceTier:
        """The prices of a prompt of this length."""
        return next(tier for tier in reversed(self.tiers) if prompt_tokens > tier.above_tokens or not tier.above_tokens)

    def to_ratios(self, prompt_tokens: int = 0) -> Prices:
        """The prices that the rules need, for prompts of this length: relative to an ordinary prompt token."""
        tier = self.at(prompt_tokens)
        if tier.input <= 0:
            return Prices()
        return Prices(1.0, tier.cached_input / tier.input, tier.output / tier.input, tier.cache_write / tier.input)


def find_price_list(config: Config, settings: PolicyConfig, model: str) -> PriceList:
    """The prices of a model with these settings. The same object for the same prices."""
    del settings, model  # the configuration has one list of prices for all models
    return _read(config.prices)


@lru_cache(64)
def _read(prices: PricesConfig) -> PriceList:
    cache_write = prices.input if prices.cache_write is None else prices.cache_write
    tier = PriceTier(0, prices.input, prices.cached_input, cache_write, prices.output)
    return PriceList((tier,), PriceSource.CONFIGURED, is_in_dollars=prices.unit == "usd")
