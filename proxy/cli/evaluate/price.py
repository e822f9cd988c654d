"""The cost of an evaluation: the estimate before a model is asked, and the real cost afterwards.

Law: tokens are the model's own, as far as its ratio is known. A completion counts with its maximum length. Dollars are
named only if the catalogue knows the price of this model at this upstream.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.config.schema import PricesConfig
from proxy.state.catalogue.providers import is_local


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

    def weigh(self, prices: PricesConfig) -> int:
        """The cost in units of one uncached prompt token, at these prices."""
        return round(self.prompt + self.completion * prices.output / prices.input)


@dataclass(frozen=True, slots=True)
class Item:
    """The most that one kind of call costs.

    what: summaries, questions, answers or grades.
    model, base_url: the model that is called, and its upstream.
    """

    what: str
    model: str
    base_url: str
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
    if is_local(item.base_url):
        return None
    from genai_prices import Usage, calc_price  # noqa: PLC0415 - slow, and not needed for local servers

    # The price of one call, times the calls: prices may depend on the length of a prompt.
    calls = item.tokens.calls
    usage = Usage(input_tokens=item.tokens.prompt // calls, output_tokens=item.tokens.completion // calls)
    try:
        return float(calc_price(usage, item.model, provider_api_url=item.base_url).total_price) * calls
    except LookupError:
        return None
