"""What a model's tokens cost, and what those of an answered request do.

Law: prices are those of one token. In dollars they are per million tokens; else only the ratios between them count.
The same question has the same answer while the process lives: the catalogue's prices are those of its first look-up's
day. Each part of a request's cost is rounded once, to a whole nanodollar; the parts are the whole cost.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from functools import cache, lru_cache
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Self

import msgspec

from trimtab.proxy.catalogue.providers import KEPT_ANSWERS, MAX_NAME_CHARS, find_host, load_providers
from trimtab.proxy.config.network import is_local
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.config.schema import Config, PricesConfig, UpstreamConfig
from trimtab.rules.policy import Prices

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

    _Price = Decimal | TieredPrices | None

NANODOLLARS = 10**9  # A dollar's nanodollars. Chosen: a cached token of the cheapest models costs about three of them.
PER_TOKEN = 1000  # nanodollars of a token that costs one dollar per million tokens
LOCAL_OUTPUT = 10.0
"""How many times longer a completion token takes than a prompt token on a server of the user's own. Chosen: about that
of a small machine, an Apple M4 with Llama 3.1 8B (225 prompt tokens a second, 21 written; issue 3 of
brand-o/normiebench). Processors are below it, and graphics cards above."""
CLOSED = re.compile(r"chatgpt|claude|gemini|gpt-[3-9]|o[1-9](?:-|$)")
"""Names of models that only their makers run: nobody else has the weights. A private server that has them is a gateway,
so what its tokens cost is not time. Source: the models that OpenAI, Anthropic and Google list without weights."""

_CHECKED = re.compile(r"(?:checked|verified)(?: on)? (\d{4}-\d\d-\d\d)", re.IGNORECASE)
"""Matches what the catalogue's comments say of a check. Source: more than a hundred of them in genai-prices 0.2.3."""


class PriceSource(StrEnum):
    """Where prices come from: the configuration, the catalogue, a server of the user's own, or nowhere."""

    CONFIGURED = "configured"
    CATALOGUE = "catalogue"
    LOCAL = "local"
    DEFAULT = "default"


class PriceTier(msgspec.Struct, frozen=True):
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


class PriceList(msgspec.Struct, frozen=True):
    """The prices of one model at one upstream.

    tiers: by the length of the prompt, the shortest first. All tokens of a prompt cost what its tier says.
    is_in_dollars: whether the prices are US dollars for a million tokens. Else money cannot be told from them.
    entry: the catalogue's entry, PROVIDER/MODEL; empty if the prices are from elsewhere.
    """

    tiers: tuple[PriceTier, ...]
    source: PriceSource
    is_in_dollars: bool = False
    entry: str = ""

    def at(self, prompt_tokens: int) -> PriceTier:
        return next(tier for tier in reversed(self.tiers) if prompt_tokens > tier.above_tokens or not tier.above_tokens)

    def to_ratios(self, prompt_tokens: int = 0) -> Prices:
        """The prices that the rules need, for prompts of this length: relative to an ordinary prompt token."""
        tier = self.at(prompt_tokens)
        if tier.input <= 0:
            return Prices()
        return Prices(1.0, tier.cached_input / tier.input, tier.output / tier.input, tier.cache_write / tier.input)


LOCAL = PriceList((PriceTier(0, 1.0, 0.0, 1.0, LOCAL_OUTPUT),), PriceSource.LOCAL)
"""The prices of a server of the user's own: the time that a token takes. Reading the cache takes none."""
_USUAL = Prices()
DEFAULT = PriceList(
    (PriceTier(0, _USUAL.input, _USUAL.cached_input, _USUAL.cache_write, _USUAL.output),), PriceSource.DEFAULT
)
"""The prices of a model about which nothing is known."""


def find_price_list(
    config: Config, settings: PolicyConfig, model: str, upstream: UpstreamConfig | None = None
) -> PriceList:
    """The prices of a model with these settings. The same object for the same prices.

    They are configured, else the catalogue's, else those of a server of the user's own, else the defaults.

    upstream: the one to ask; None for that of the settings.

    Thread-safe. Loads the catalogue if necessary.
    """
    upstream = upstream or config.upstream_for(settings.upstream)
    prices = config.prices_for(settings, upstream)
    return find_listed(upstream.base_url, model) if prices == "auto" else read_prices(prices)


@lru_cache(KEPT_ANSWERS)
def find_listed(base_url: str, model: str) -> PriceList:
    """The prices of an upstream's model that are known without any configuration.

    If the catalogue knows the upstream by its URL, they are its list prices in dollars. For any other public upstream,
    they are the list prices of the model's maker; only their ratios count then, because others set their own prices.
    """
    name = model.rpartition("/")[2].lower()  # gateways write maker/model
    if is_local(base_url):
        return DEFAULT if CLOSED.match(name) else LOCAL
    if len(model) > MAX_NAME_CHARS:
        return DEFAULT
    host = find_host(base_url)
    if host is not None:
        return _find_at((host,), model, is_in_dollars=True) or DEFAULT
    makers = [one for one in load_providers() if one.model_match is not None and one.model_match.is_match(name)]
    return _find_at(makers, name, is_in_dollars=False) or DEFAULT


def describe_catalogue() -> str:
    """The catalogue, its version, and the newest date on which its authors say that they have checked a price.

    It names no date of its own, so it is of that day or later.
    """
    told = f"genai-prices {version('genai-prices')}"
    noted = [(one.price_comments, *(model.price_comments for model in one.models)) for one in load_providers()]
    newest = find_newest_check(chain.from_iterable(noted))
    return told if newest is None else f"{told} of {newest} or later"


def find_newest_check(comments: Iterable[str | None]) -> date | None:
    """The newest day, up to today, on which comments say that something was checked; None if they say none."""
    today = _find_noon().date()
    told = (_read_date(match[1]) for comment in comments if comment for match in _CHECKED.finditer(comment))
    return max((day for day in told if day is not None and day <= today), default=None)


def _read_date(written: str) -> date | None:
    try:
        return date.fromisoformat(written)
    except ValueError:
        return None


@lru_cache(64)
def read_prices(prices: PricesConfig) -> PriceList:
    cache_write = prices.input if prices.cache_write is None else prices.cache_write
    tier = PriceTier(0, prices.input, prices.cached_input, cache_write, prices.output)
    return PriceList((tier,), PriceSource.CONFIGURED, is_in_dollars=prices.unit == "usd")


def _find_at(providers: "Sequence[Provider]", model: str, *, is_in_dollars: bool) -> PriceList | None:
    every = list(load_providers())
    for provider in providers:
        found = provider.find_model(model, all_providers=every)
        tiers = () if found is None else _read_tiers(_find_prices(found))
        if found is not None and tiers:
            return PriceList(tiers, PriceSource.CATALOGUE, is_in_dollars, f"{provider.id}/{found.id}")
    return None


@cache
def _find_noon() -> datetime:
    """Noon (UTC) of the day of the first look-up. It stays, so that no price changes while the process lives."""
    return datetime.combine(datetime.now(UTC).date(), time(12), UTC)


def _find_prices(model: "ModelInfo") -> "ModelPrice | None":
    """The prices in force at noon (UTC) today. They count for all hours of the day: else cuts would move with the hour.

    Of the two prices that DeepSeek has in a day, the one at noon is that of most hours.
    """
    from genai_prices.types import ModelPrice  # noqa: PLC0415 - slow; the catalogue is loaded

    if isinstance(model.prices, ModelPrice):
        return model.prices
    active = [one for one in model.prices if one.constraint is None or one.constraint.active(_find_noon())]
    return next((one.prices for one in (*active[::-1], *model.prices)), None)


def _read_tiers(prices: "ModelPrice | None") -> tuple[PriceTier, ...]:
    """The tiers of the catalogue's prices; empty without a price for the prompt or the completion."""
    if prices is None or prices.input_mtok is None or prices.output_mtok is None:
        return ()
    told = (prices.input_mtok, prices.cache_read_mtok, prices.cache_write_mtok, prices.output_mtok)
    starts = {tier.start for price in told if not isinstance(price, Decimal | None) for tier in price.tiers}
    return tuple(_read_tier(above_tokens, *told) for above_tokens in sorted({0, *starts}))


def _read_tier(above_tokens: int, told_input: "_Price", read: "_Price", write: "_Price", output: "_Price") -> PriceTier:
    """One tier. A cached token costs no more than another, and one that is written no less.

    In the catalogue, a lower price of writing is what storing costs in addition (Gemini at OpenRouter) or half a line
    (MiniMax); no upstream reads a token for less because it stores it.
    """
    input_ = _at(told_input, above_tokens) or 0.0
    cached, written = _at(read, above_tokens), _at(write, above_tokens)
    return PriceTier(
        above_tokens,
        input_,
        input_ if cached is None else min(cached, input_),
        input_ if written is None else max(written, input_),
        _at(output, above_tokens) or 0.0,
    )


def _at(price: "_Price", above_tokens: int) -> float | None:
    """A price for prompts of a little more than this number of tokens, in dollars for a million tokens."""
    if price is None or isinstance(price, Decimal):
        return None if price is None else float(price)
    return float(next((tier.price for tier in reversed(price.tiers) if tier.start <= above_tokens), price.base))


def to_dollars(nanodollars: int | None) -> float | None:
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
        return self.fresh + self.cached + self.written


class Cost(msgspec.Struct, frozen=True):
    fresh: int = 0
    cached: int = 0
    written: int = 0
    completion: int = 0

    @property
    def total(self) -> int:
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
