"""What the tokens of an answered request cost. Pure.

Law: each part is rounded once, to a whole nanodollar. The parts are the whole cost.
"""

from typing import Self

import msgspec

from proxy.state.catalogue.prices import PriceList

NANODOLLARS = 10**9
"""A dollar's nanodollars. Chosen: a cached token of the cheapest models costs about three of them."""
PER_TOKEN = 1000
"""Nanodollars of a token that costs one dollar per million tokens."""


def to_dollars(nanodollars: int | None) -> float | None:
    """An amount in dollars, as people and JSON are shown it; None if it is not known."""
    return None if nanodollars is None else nanodollars / NANODOLLARS


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of an answered request, in the model's own tokens. The prompt has three parts: fresh, cached, written.

    Make it with `of`, which holds the parts within the prompt.
    """

    fresh: int = 0
    cached: int = 0
    written: int = 0
    completion: int = 0

    @classmethod
    def of(
        cls, prompt: int, cached: int | None = None, written: int | None = None, completion: int | None = None
    ) -> Self:
        """The parts of a prompt, of which some tokens were read from the cache and some written into it.

        None: not reported, which counts as 0.
        """
        read = min(cached or 0, prompt)
        kept = min(written or 0, prompt - read)
        return cls(prompt - read - kept, read, kept, completion or 0)

    @property
    def prompt(self) -> int:
        """All tokens of the prompt."""
        return self.fresh + self.cached + self.written


class Cost(msgspec.Struct, frozen=True):
    """What the parts of a request cost, in nanodollars."""

    fresh: int = 0
    cached: int = 0
    written: int = 0
    completion: int = 0

    @property
    def total(self) -> int:
        """All parts together."""
        return self.fresh + self.cached + self.written + self.completion


def price(tokens: Tokens, prices: PriceList) -> Cost | None:
    """What some tokens cost; None if the prices are not in dollars. The length of the prompt decides the tier."""
    if not prices.is_in_dollars:
        return None
    tier = prices.at(tokens.prompt)
    return Cost(
        fresh=_multiply(tokens.fresh, tier.input),
        cached=_multiply(tokens.cached, tier.cached_input),
        written=_multiply(tokens.written, tier.cache_write),
        completion=_multiply(tokens.completion, tier.output),
    )


def _multiply(tokens: int, dollars: float) -> int:
    return round(tokens * dollars * PER_TOKEN)


class Bill(msgspec.Struct, frozen=True):
    """What an answered request has cost, and what it would have cost without trimtab.

    without: the tokens that the upstream would have charged for if the request had passed unchanged.
    cost, without_cost: None if no price in dollars is known.
    is_estimated: the upstream did not report all of the tokens, so some are trimtab's estimate.
    """

    tokens: Tokens = msgspec.field(default_factory=Tokens)
    without: Tokens = msgspec.field(default_factory=Tokens)
    cost: Cost | None = None
    without_cost: Cost | None = None
    is_estimated: bool = False
