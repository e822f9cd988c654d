"""The configuration's keys for prices.

Law: a mapping is taken as a whole. A key that it does not set has its default, whatever is configured elsewhere.
"""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from proxy.config.policies.tools import Section
from proxy.config.values import refused, require
from proxy.config.words import Wanted


class PricesConfig(Section):
    """What tokens cost, relative to each other or in dollars."""

    input: float = Field(1.0, gt=0, description="Price of a prompt token that is not in the upstream's prompt cache.")
    cached_input: float = Field(
        0.1, ge=0, description="Price of a prompt token that the upstream reads from its prompt cache."
    )
    cache_write: float | None = Field(
        None,
        ge=0,
        description="Price of a prompt token that the upstream writes into its prompt cache. null: the price of input.",
    )
    output: float = Field(4.0, ge=0, description="Price of a completion token.")
    unit: Literal["ratio", "usd"] = Field(
        "ratio",
        examples=["ratio"],
        description="The unit of these prices. ratio: any, because only the ratios between them count. usd: US dollars "
        "for a million tokens, so that costs can also be shown in dollars; then set input, cached_input and output.",
    )

    @model_validator(mode="after")
    def _check_dollars(self) -> Self:
        missing = [name for name in ("input", "cached_input", "output") if name not in self.model_fields_set]
        # The defaults are ratios. As dollars they would be wrong without anyone noticing.
        require(self.unit == "ratio" or not missing, f"needs {' and '.join(missing)} too, since unit is usd")
        return self


def _check_prices(prices: object) -> object:
    # Checked here, and not by pydantic's union: that would report an error for each of the two types.
    if prices == "auto" or isinstance(prices, PricesConfig):
        return prices
    if not isinstance(prices, dict):
        raise refused()
    return PricesConfig.model_validate(prices)  # its errors contain the key of each wrong price


AutoPrices = Annotated[
    Literal["auto"] | PricesConfig, BeforeValidator(_check_prices), Wanted("auto, or a mapping of prices")
]
"""The type of `prices`."""
