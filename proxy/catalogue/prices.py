"""The providers in the catalogue: which of them an upstream is, the windows of their models, and what tokens cost.

Law: servers on this machine or in a private network are no provider's: they may give a model any name. A window of the
catalogue counts only if the upstream does not report one.

Prices are those of one token. In dollars they are per million tokens; else only the ratios between them count. The same
question has the same answer while the process lives: the catalogue's prices are those of its first look-up's day. Each
part of a request's cost is rounded once, to a whole nanodollar; the parts are the whole cost.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import msgspec

from trimtab.proxy.config.network import is_local, read_host
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.config.schema import Config, PricesConfig, UpstreamConfig
from trimtab.rules.policy import Prices

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

    _Price = Decimal | TieredPrices | None

MAX_NAME_CHARS = 256  # A longer name is not looked up. Chosen: four times the longest in the catalogue, which has 61.
KEPT_ANSWERS = 4096  # answers kept in memory. Chosen: more than the catalogue's 2330 models.
_END = r"(?:(?<=[./])|(?![^/]))"
"""Where a pattern of the catalogue may end in a URL: not within a name, as `api.openai.com` would in a longer host. One
pattern ends with the dot before the last part of its hosts."""


def load_catalogue(base_urls: tuple[str, ...]) -> None:
    """Load the catalogue, unless all these upstreams are local. Takes 0.1 to 0.4 s the first time."""
    if not all(map(is_local, base_urls)):
        load_providers()


def is_ready(base_url: str) -> bool:
    return is_local(base_url) or load_providers.cache_info().currsize > 0


@lru_cache(64)
def find_host(base_url: str) -> "Provider | None":
    """The provider at a URL's host, at some hosts by the path; None if unknown. Loads the catalogue if necessary."""
    url = f"https://{read_host(base_url)}{urlsplit(base_url).path}"  # the catalogue's patterns expect https
    return next((one for one in load_providers() if re.match(f"(?:{one.api_pattern}){_END}", url)), None)


@cache
def load_providers() -> "tuple[Provider, ...]":
    """All providers, from the data in the installed package. The package's own updates over the network stay off."""
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - slow, and useless for local servers

    return tuple(get_snapshot().providers)


MIN_WINDOW_TOKENS = 1024  # Smaller ones are ignored. Chosen: only embedding models and classifiers have them (512).
MILLION_TOKENS = 1_000_000  # source: Anthropic's page on context windows
_ASKED = "[1m]"  # Ends the name of a model whose window of a million is asked for. Source: Claude Code.
_HAVE_MILLION = (
    "*sonnet-4*", "*4-sonnet*", "*sonnet-[5-9]*", "*opus-4[.-][6-9]*", "*opus-[5-9]*", "*fable-*", "*mythos-*",
)  # fmt: skip
"""Models of Anthropic that have a window of a million, some of them only if it is asked for. Source: its page on
context windows."""
_PROMPTS = (
    ("gpt-5*-chat*", 400_000, 128_000),
    ("gpt-[5-9]*", 400_000, 272_000),
    ("gpt-[5-9]*", 1_000_000, 922_000),
    ("gpt-[5-9]*", 1_050_000, 922_000),
    ("deepseek-chat*", 64_000, 128_000),
    ("deepseek-reasoner*", 64_000, 128_000),
)
"""What the catalogue (genai-prices 0.2.3) says of some models, and the most tokens that a prompt for them may have.
Source: the pages of OpenAI (of 400,000 tokens, and of 1,050,000, 128,000 are for the completion alone; OpenRouter and
models.dev say the same) and of DeepSeek (V3.2; the two names ended with V4, whose own names have a million)."""


@lru_cache(KEPT_ANSWERS)
def find_window(base_url: str, model: str) -> int | None:
    """The context window of an upstream's model in tokens; None if unknown. Thread-safe. May load the catalogue.

    Of a public upstream that is not in the catalogue: the smallest window of the name among all that make or offer it.
    """
    if len(model) > MAX_NAME_CHARS or is_local(base_url):
        return None
    model = model.removesuffix(_ASKED)
    sellers, listed_as, _ = _find_sellers(base_url, model)
    found = _find_smallest(sellers, listed_as)
    name = model.rpartition("/")[2].lower()
    checked = (tokens for glob, listed, tokens in _PROMPTS if found == listed and fnmatchcase(name, glob))
    return next(checked, found)


def asks_million(model: str, betas: str) -> bool:
    """Whether a request with these features (`betas`) asks for a window of a million tokens, and its model has it."""
    if "context-1m-" not in betas and not model.lower().endswith(_ASKED):
        return False
    name = model[:MAX_NAME_CHARS].lower()
    return any(fnmatchcase(name.removesuffix(_ASKED), glob) for glob in _HAVE_MILLION)


def _find_sellers(base_url: str, model: str) -> "tuple[Sequence[Provider], str, bool]":
    """Who knows a model, under which name: the upstream's own provider (then it is true), else the model's makers."""
    host = find_host(base_url)
    if host is not None:
        return (host,), model, True
    name = model.rpartition("/")[2].lower()  # gateways write maker/model
    makers = [one for one in load_providers() if one.model_match is not None and one.model_match.is_match(name)]
    return makers, name, False


def _find_smallest(providers: "Sequence[Provider]", model: str) -> int | None:
    every = list(load_providers())
    found = (provider.find_model(model, all_providers=every) for provider in providers)
    windows = [one.context_window for one in found if one is not None and one.context_window is not None]
    return min((window for window in windows if window >= MIN_WINDOW_TOKENS), default=None)


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
    """The prices of prompts above `above_tokens`. cache_write: of a written token; as `input` if it costs no more."""

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
    """A model's prices, the same object for the same ones: configured, else the catalogue's, else local, or default.

    upstream: None for that of the settings. Thread-safe. Loads the catalogue if necessary.
    """
    upstream = upstream or config.upstream_for(settings.upstream)
    prices = config.prices_for(settings, upstream)
    return find_listed(upstream.base_url, model) if prices == "auto" else read_prices(prices)


@lru_cache(KEPT_ANSWERS)
def find_listed(base_url: str, model: str) -> PriceList:
    """Prices known without configuration: the catalogue's, by URL; else the maker's, of which only the ratios count."""
    name = model.rpartition("/")[2].lower()  # gateways write maker/model
    if is_local(base_url):
        return DEFAULT if CLOSED.match(name) else LOCAL
    if len(model) > MAX_NAME_CHARS:
        return DEFAULT
    sellers, listed_as, is_own = _find_sellers(base_url, model)
    return _find_at(sellers, listed_as, is_in_dollars=is_own) or DEFAULT


def describe_catalogue() -> str:
    """The catalogue's version, and the newest date of a checked price: it has no date of its own, and is no older."""
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
    """Today's prices at noon (UTC), for all hours, or cuts would move. DeepSeek has two; most hours have noon's."""
    from genai_prices.types import ModelPrice  # noqa: PLC0415 - slow; the catalogue is loaded

    if isinstance(model.prices, ModelPrice):
        return model.prices
    active = [one for one in model.prices if one.constraint is None or one.constraint.active(_find_noon())]
    return next((one.prices for one in (*reversed(active), *model.prices)), None)


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
    """The model's own tokens of an answered request. Make it with `of`, which holds the parts within the prompt."""

    fresh: int = 0
    cached: int = 0
    written: int = 0
    completion: int = 0

    @classmethod
    def of(
        cls, prompt: int, cached: int | None = None, written: int | None = None, completion: int | None = None
    ) -> Self:
        """The parts of a prompt. None: not reported, which counts as 0."""
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
    """The cost of an answered request, and what it would have been without trimtab; None without a price in dollars."""

    tokens: Tokens = msgspec.field(default_factory=Tokens)
    without: Tokens = msgspec.field(default_factory=Tokens)
    cost: Cost | None = None
    without_cost: Cost | None = None
    is_estimated: bool = False
