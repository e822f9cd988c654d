"""Ten price lists of real models, from the data of the package genai-prices.

Law: names are given here, prices are looked up. All are US dollars for a million tokens.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from importlib.metadata import version

from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, TieredPrices

from bench.sessions.caches.breakpoints import Breakpoints
from bench.sessions.caches.cache import CacheKind
from bench.sessions.caches.longest import LongestPrefix
from bench.sessions.caches.lookback import LookBack
from bench.sessions.ledger import Prices
from trimtab.proxy.config.schema import PricesConfig

WRITE = "cache_write_mtok"
HOUR_WRITE = "cache_write_1h_mtok"
FIVE_MINUTES, HALF_HOUR, HOUR = 300.0, 1800.0, 3600.0
NOON = time(12, tzinfo=UTC)
"""Chosen: prices that change with the time of the day are those of noon."""

OpenKind = Callable[[float], CacheKind]


@dataclass(frozen=True, slots=True)
class Model:
    """A model whose prices are looked up. `open_kind` makes its provider's kind of cache from a lifetime."""

    name: str
    provider: str
    model: str
    lifetime_seconds: float
    open_kind: OpenKind
    write: str = WRITE


def _find_longest(lifetime_seconds: float) -> CacheKind:
    return LongestPrefix(lifetime_seconds=lifetime_seconds)


def _find_in_64(lifetime_seconds: float) -> CacheKind:
    return LongestPrefix(64, 64, lifetime_seconds)


def _find_breakpoints(lifetime_seconds: float) -> CacheKind:
    return Breakpoints(lifetime_seconds=lifetime_seconds)


def _look_back(lifetime_seconds: float) -> CacheKind:
    return LookBack(lifetime_seconds=lifetime_seconds)


MODELS = (
    Model("deepseek", "deepseek", "deepseek-v4-flash", 2 * HOUR, _find_in_64),
    Model("fable", "anthropic", "claude-fable-5-2", FIVE_MINUTES, _look_back),
    Model("sonnet", "anthropic", "claude-sonnet-5-5", FIVE_MINUTES, _look_back),
    Model("opus", "anthropic", "claude-opus-5", FIVE_MINUTES, _look_back),
    Model("opus-1h", "anthropic", "claude-opus-5", HOUR, _look_back, HOUR_WRITE),
    Model("gpt-5.6", "openai", "gpt-5.6-sol", HALF_HOUR, _find_breakpoints),
    Model("gemini", "google", "gemini-3.1-pro-preview", FIVE_MINUTES, _find_longest),
    Model("kimi", "moonshotai", "kimi-k2.6", FIVE_MINUTES, _find_longest),
    Model("grok", "x-ai", "grok-4.7", FIVE_MINUTES, _find_longest),
    Model("groq", "groq", "openai/gpt-oss-120b", 2 * HOUR, _find_longest),
)
"""Chosen: the whole range of prices for cached reads, at providers that agents use; cheapest reads first.

Lifetimes: Anthropic's and OpenAI's documentation (../shared/notes/field.md, 2.1 and 2.2). DeepSeek says "a few hours",
Groq two hours. Google, Moonshot and xAI promise nothing for caches that they fill by themselves: five minutes are
chosen.
"""


@dataclass(frozen=True, slots=True)
class PriceList:
    """The prices of a model, and how its provider caches."""

    model: Model
    prices: Prices

    @property
    def name(self) -> str:
        """Its short name."""
        return self.model.name

    @property
    def kind(self) -> CacheKind:
        """Its provider's kind of cache."""
        return self.model.open_kind(self.model.lifetime_seconds)

    def describe(self) -> str:
        """Its model, and its prices relative to an ordinary prompt token."""
        ratios = to_ratios(self.prices)
        longer = ", ".join(f"over {above:,} tokens dearer" for above, _ in self.prices.longer)
        return (
            f"{self.name}: {self.model.provider}/{self.model.model}, input ${self.prices.input:g}; "
            f"cached {ratios.cached_input:g}, written {ratios.cache_write:g}, output {ratios.output:g}; "
            f"kept {self.model.lifetime_seconds / 60:g} minutes" + (f"; {longer}" if longer else "")
        )


def load_lists(names: str, on: date | None = None) -> list[PriceList]:
    """The lists of these names (`all`, or NAME,...), with the prices of a day, today if none is given.

    Raises SystemExit for an unknown name, and if genai-prices no longer has a model.
    """
    wanted = [model.name for model in MODELS] if names == "all" else names.split(",")
    unknown = set(wanted) - {model.name for model in MODELS}
    if unknown:
        message = f"no such price list: {', '.join(sorted(unknown))}; known: {', '.join(one.name for one in MODELS)}"
        raise SystemExit(message)
    moment = datetime.combine(on or datetime.now(tz=UTC).date(), NOON)
    return [PriceList(model, _read(model, moment)) for model in MODELS if model.name in wanted]


def describe_source(lists: list[PriceList]) -> str:
    """Where the prices are from, and what they are."""
    head = f"prices: genai-prices {version('genai-prices')}, on {datetime.now(tz=UTC).date()} at noon UTC"
    return "\n".join((head, *(f"  {one.describe()}" for one in lists)))


def to_ratios(prices: Prices) -> Prices:
    """Prices of short prompts relative to an ordinary prompt token."""
    unit = prices.input
    return Prices(1.0, prices.cached_input / unit, prices.output / unit, prices.cache_write / unit)


def to_settings(prices: Prices) -> tuple[str, ...]:
    """Trimtab's settings for these prices: all keys that this version of trimtab has."""
    ratios = to_ratios(prices)
    values = {"unit": "ratio"} | {
        name: repr(getattr(ratios, name)) for name in ("input", "cached_input", "cache_write", "output")
    }
    return tuple(f"prices.{name}={value}" for name, value in values.items() if name in PricesConfig.model_fields)


def _read(model: Model, moment: datetime) -> Prices:
    info = _find(model)
    found = info.get_prices(moment)
    rows = {
        "input": found.input_mtok,
        "cached_input": found.cache_read_mtok,
        "output": found.output_mtok,
        "cache_write": getattr(found, model.write, None) or found.input_mtok,
    }
    starts = sorted({tier.start for row in rows.values() if isinstance(row, TieredPrices) for tier in row.tiers})
    short, *longer = (_read_tier(rows, start) for start in (0, *starts))
    return replace(short, longer=tuple(zip(starts, longer, strict=True)))


def _read_tier(rows: Mapping[str, object], start: int) -> Prices:
    at = {name: _at(row, start) for name, row in rows.items()}
    return Prices(at["input"], at["cached_input"], at["output"], at["cache_write"])


def _at(row: object, tokens: int) -> float:
    """A price for prompts with more than so many tokens. Raises SystemExit if there is none."""
    if row is None:
        message = "genai-prices has no price for cached reads of a model in bench/sessions/lists/prices.py"
        raise SystemExit(message)
    if isinstance(row, TieredPrices):
        reached = [tier.price for tier in sorted(row.tiers, key=lambda tier: tier.start) if tier.start <= tokens]
        return float(reached[-1] if reached and tokens else row.base)
    return float(str(row))


def _find(model: Model) -> ModelInfo:
    for info in _list_models(model.provider):
        if info.id == model.model:
            return info
    message = f"genai-prices {version('genai-prices')} has no {model.provider}/{model.model}"
    raise SystemExit(message)


def _list_models(provider: str) -> Iterator[ModelInfo]:
    for one in get_snapshot().providers:
        if one.id == provider:
            yield from one.models
