"""The configuration's keys for prices.

Law: only the ratios between them count, so any unit is right.
"""

from typing import Literal

from pydantic import Field

from proxy.config.policies.tools import Section


class PricesConfig(Section):
    """What tokens cost relative to each other."""

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
        description="The unit of these prices. ratio: any, because only the ratios between them count. usd: US dollars "
        "for a million tokens, so that costs can also be shown in dollars.",
    )
