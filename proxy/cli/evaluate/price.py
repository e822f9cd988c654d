"""The cost of an evaluation: the estimate before a model is asked, and the real cost afterwards.

Law: tokens are the model's own, as far as its ratio is known. A completion counts with its maximum length. Dollars are
named only if the price of this model at this upstream is known in dollars.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.state.catalogue.prices import PriceList

MILLION = 1_000_000
"""Source: prices in dollars are those of a million tokens."""


@dataclass(slots=True)
class Tokens:
    """A number of calls, and the tokens of all of them together."""

    calls: int = 0
    prompt: int = 0
    completion: int = 0

    def add(self, prompt: int, completion: int, calls: int = 1) -> None:
        """Add calls. The tokens are those of all of these calls together."""
        self.calls += calls
        self.prompt += prompt
        self.completion += completion

    def weigh(self, prices: PriceList) -> int:
        """The cost in units of one uncached prompt token, at these prices."""
        return round(self.prompt + self.completion * prices.to_ratios().output)


@dataclass(frozen=True, slots=True)
class Item:
    """The most that one kind of call costs.

    what: summaries, questions, answers or grades.
    model, prices: the model that is called, and what its tokens cost.
    """

    what: str
    model: str
    prices: PriceList
    tokens: Tokens


def add_up(items: Iterable[Item]) -> Tokens:
    """The sum of all items."""
    everything = Tokens()
    for item in items:
        everything.add(item.tokens.prompt, item.tokens.completion, item.tokens.calls)
    return everything


def find_dollars(items: Iterable[Item]) -> float | None:
    """US dollars for the items at list prices, without any prompt cache; None if a price is not known."""
    dollars = [_find_price(item) for item in items if item.tokens.calls]
    known = [price for price in dollars if price is not None]
    return sum(known) if len(known) == len(dollars) else None


def _find_price(item: Item) -> float | None:
    if not item.prices.is_in_dollars:
        return None
    tokens = item.tokens
    tier = item.prices.at(tokens.prompt // tokens.calls)
    return (tokens.prompt * tier.input + tokens.completion * tier.output) / MILLION
