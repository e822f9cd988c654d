"""What an evaluation will cost, told before anything is asked, and what it has cost.

Law: tokens are the model's own, as far as its ratio is known. Completions are counted as long as they may be. Money is
named only if the catalogue knows the price of that model at that very upstream.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.config.schema import PricesConfig
from proxy.state.models.catalogue import is_local


@dataclass(slots=True)
class Tokens:
    """Calls, and what they cost in tokens."""

    calls: int = 0
    prompt: int = 0
    completion: int = 0

    def add(self, prompt: int, completion: int, calls: int = 1) -> None:
        """Count calls, with the tokens of all of them together."""
        self.calls += calls
        self.prompt += prompt
        self.completion += completion

    def weigh(self, prices: PricesConfig) -> int:
        """What they cost in uncached prompt tokens."""
        return round(self.prompt + self.completion * prices.output / prices.input)


@dataclass(frozen=True, slots=True)
class Item:
    """What one kind of question costs, at most; whose model answers it, and at which base URL."""

    what: str
    model: str
    base_url: str
    tokens: Tokens


def add_up(items: Iterable[Item]) -> Tokens:
    """All items together."""
    everything = Tokens()
    for item in items:
        everything.add(item.tokens.prompt, item.tokens.completion, item.tokens.calls)
    return everything


def find_dollars(items: Iterable[Item]) -> float | None:
    """What the items cost at list price, without any cache; None if the price of one is not known."""
    dollars = [_find_price(item) for item in items if item.tokens.calls]
    known = [price for price in dollars if price is not None]
    return sum(known) if len(known) == len(dollars) else None


def _find_price(item: Item) -> float | None:
    if is_local(item.base_url):
        return None
    from genai_prices import Usage, calc_price  # noqa: PLC0415 - slow, and of no use to local servers

    # One call's tokens: prices may depend on a prompt's length.
    calls = item.tokens.calls
    usage = Usage(input_tokens=item.tokens.prompt // calls, output_tokens=item.tokens.completion // calls)
    try:
        return float(calc_price(usage, item.model, provider_api_url=item.base_url).total_price) * calls
    except LookupError:
        return None
