"""Which prices are used, and where they come from.

Law: no upstream is asked for them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.table import Table

from proxy.catalogue.prices import PriceList, PriceSource, PriceTier, describe_catalogue
from proxy.catalogue.providers import is_local
from proxy.cli.doctor.checks import Finding
from proxy.config.policies.policy import PolicyConfig
from proxy.config.schema import Config

MAX_NAMED = 5
"""How many models one finding names at most. Chosen: keeps it readable."""


@dataclass(frozen=True, slots=True)
class ModelPrices:
    """What a model's tokens cost.

    source: configured, catalogue, local or default.
    entry: the catalogue's entry, PROVIDER/MODEL.
    unit: usd (for a million tokens) or ratio.
    tiers: by the length of the prompt, the shortest first.
    """

    source: str
    entry: str
    unit: str
    tiers: tuple[PriceTier, ...]

    @classmethod
    def of(cls, prices: PriceList) -> "ModelPrices":
        """What the report shows of a list."""
        return cls(prices.source, prices.entry, "usd" if prices.is_in_dollars else "ratio", prices.tiers)


def make_table() -> Table:
    """An empty table of prices; `list_rows` makes its rows."""
    return Table("model", "prices from", "entry", "unit", "prompts above", "input", "cached", "written", "output")


def list_rows(model: str, prices: ModelPrices) -> list[tuple[str, ...]]:
    """A row for each tier."""
    return [
        (
            *((model, prices.source, prices.entry, prices.unit) if tier is prices.tiers[0] else ("",) * 4),
            f"{tier.above_tokens:,}",
            *(f"{price:.4g}" for price in (tier.input, tier.cached_input, tier.cache_write, tier.output)),
        )
        for tier in prices.tiers
    ]


def check_prices(config: Config, models: Iterable[tuple[str, ModelPrices | None]]) -> Finding:
    """What each part of the configuration says about prices, and the models for which they are not known."""
    parts = {"the main upstream": PolicyConfig(), "defaults": config.defaults}
    parts |= {entry.match: config.over_defaults(entry) for entry in config.models}
    parts |= {f"profile {name}": config.over_defaults(profile) for name, profile in config.profiles.items()}
    told = {name: _tell(config, policy) for name, policy in parts.items()}
    usual = told.pop("the main upstream")
    found = "; ".join(
        [f"the main upstream: {usual}", *(f"{name}: {how}" for name, how in told.items() if how != usual)]
    )
    unknown = [model for model, prices in models if prices is not None and prices.source == PriceSource.DEFAULT]
    if not unknown:
        return Finding("prices", "ok", found)
    found += f"; unknown for {', '.join(unknown[:MAX_NAMED])}{' and others' if unknown[MAX_NAMED:] else ''}"
    return Finding("prices", "warning", found, "the usual ratios are assumed; set prices for these models")


def _tell(config: Config, policy: PolicyConfig) -> str:
    upstream = config.upstream_for(policy.upstream)
    if config.prices_for(policy, upstream) != "auto":
        return "configured"
    return "by time, as of a local server" if is_local(upstream.base_url) else f"from {describe_catalogue()}"
