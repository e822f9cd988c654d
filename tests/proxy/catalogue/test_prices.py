"""The prices of a model."""

import subprocess
import sys
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from fractions import Fraction
from importlib.metadata import version
from math import isfinite
from types import SimpleNamespace
from typing import Any

import pytest
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)
from hypothesis import given
from hypothesis import strategies as st
from support.golden import read_tables

from trimtab.proxy.catalogue.prices import (
    DEFAULT,
    LOCAL,
    LOCAL_OUTPUT,
    MAX_NAME_CHARS,
    MIN_WINDOW_TOKENS,
    PriceList,
    PriceSource,
    PriceTier,
    Tokens,
    _find_at,
    _find_smallest,
    asks_million,
    describe_catalogue,
    find_host,
    find_listed,
    find_newest_check,
    find_price_list,
    find_window,
    load_providers,
    price,
)
from trimtab.proxy.config.load import load_config
from trimtab.rules.policy import Prices

OPENAI = "https://api.openai.com/v1"
GATEWAY = "https://gateway.example.com/v1"


def test_the_rules_get_ratios() -> None:
    """Whatever the unit is, they are relative to an ordinary prompt token; the usual ones if that costs nothing."""
    assert PriceList((PriceTier(0, 0.0, 0.0, 0.0, 0.0),), PriceSource.CATALOGUE).to_ratios() == Prices()
    cheap, dear = PriceTier(0, 2.0, 0.2, 2.5, 10.0), PriceTier(200_000, 4.0, 1.0, 5.0, 12.0)
    prices = PriceList((cheap, dear), PriceSource.CATALOGUE, is_in_dollars=True)
    assert prices.to_ratios() == prices.to_ratios(200_000) == Prices(1.0, 0.1, 5.0, 1.25)
    assert prices.at(200_001) is dear
    assert prices.to_ratios(200_001) == Prices(1.0, 0.25, 3.0, 1.25)


def test_configured_prices_come_first() -> None:
    """The same configuration gives the same object, so that policies can be kept by it. Dollars are dollars."""
    config = load_config("prices: {input: 2, cached_input: 0.5, output: 9}", environment={})
    first, second = (find_price_list(config, config.policy_for("m"), "m") for _ in range(2))
    assert first is second
    assert first.to_ratios() == Prices(1.0, 0.25, 4.5, 1.0)
    assert not first.is_in_dollars
    assert first.source is PriceSource.CONFIGURED
    dollars = "prices: {input: 2, cached_input: 0.2, cache_write: 2.5, output: 8, unit: usd}"
    config = load_config(dollars, environment={})
    prices = find_price_list(config, config.policy_for("m"), "m")
    assert (prices.is_in_dollars, prices.to_ratios().cache_write) == (True, 1.25)


def test_a_policy_has_the_prices_of_its_own_upstream() -> None:
    """The caller may name another upstream, as for a summary that another server writes."""
    config = load_config(
        "{upstreams: {u: {base_url: 'http://10.0.0.1/v1', prices: {output: 7}}, v: {base_url: 'http://10.0.0.2/v1'}},"
        " models: [{match: m, upstream: u}]}",
        environment={},
    )
    settings = config.policy_for("m")
    assert find_price_list(config, settings, "m").to_ratios().output == 7
    assert find_price_list(config, settings, "m", config.upstreams["v"]) is LOCAL
    assert find_price_list(config, config.policy_for("gpt-4o"), "gpt-4o").entry == "openai/gpt-4o"


@pytest.mark.parametrize(
    ("base_url", "model", "entry"),
    [
        (OPENAI, "gpt-4o", "openai/gpt-4o"),
        ("https://api.anthropic.com/v1", "claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("https://openrouter.ai/api/v1", "anthropic/claude-sonnet-4.5", "openrouter/anthropic/claude-sonnet-4.5"),
        ("https://mine.openai.azure.com/openai/v1", "gpt-4.1", "azure/gpt-4.1"),
        ("https://api.deepseek.com", "deepseek-v4-pro", "deepseek/deepseek-v4-pro"),
    ],
)
def test_hosts_in_the_catalogue_have_list_prices_in_dollars(base_url: str, model: str, entry: str) -> None:
    """The same object each time. A prompt token costs money, and one that is read from the cache costs no more."""
    found = find_listed(base_url, model)
    assert (found.source, found.entry, found.is_in_dollars) == (PriceSource.CATALOGUE, entry, True)
    assert found is find_listed(base_url, model)
    assert 0 < found.tiers[0].cached_input < found.tiers[0].input


def test_at_a_public_gateway_the_makers_ratios_count() -> None:
    """What the gateway charges is not known, so nothing is in dollars."""
    direct, through = find_listed(OPENAI, "gpt-4o"), find_listed(GATEWAY, "openai/gpt-4o")
    assert through.to_ratios() == direct.to_ratios()
    assert (through.source, through.is_in_dollars) == (PriceSource.CATALOGUE, False)


@pytest.mark.parametrize(
    ("base_url", "model"),
    [
        (OPENAI, "no-such-model"),
        (OPENAI, "text-embedding-3-small"),
        (GATEWAY, "no-such-model"),
        (OPENAI, "gpt-4o" * 99),
    ],
)
def test_what_nobody_lists_has_the_usual_ratios(base_url: str, model: str) -> None:
    """So has a model without completions."""
    assert find_listed(base_url, model) is DEFAULT
    assert DEFAULT.to_ratios() == Prices()


def test_a_server_of_ones_own_charges_time() -> None:
    """Reading its cache takes none. A model that only its maker runs shows that the server is a gateway."""
    local = find_listed("http://127.0.0.1:8000/v1", "qwen3")
    assert (local.source, local.is_in_dollars) == (PriceSource.LOCAL, False)
    assert local.to_ratios() == Prices(1.0, 0.0, LOCAL_OUTPUT, 1.0)
    for model in ("openai/gpt-4o", "claude-sonnet-4-5", "gemini/gemini-2.5-pro", "o3", "o4-mini"):
        assert find_listed("http://localhost:4000/v1", model) is DEFAULT, model
    for model in ("gpt-oss-120b", "gpt-2", "olmo", "o3x"):
        assert find_listed("http://localhost:4000/v1", model) is LOCAL, model


def _model(prices: ModelPrice | list[ConditionalPrice]) -> PriceList | None:
    model = ModelInfo("m", ClauseEquals("m"), prices=prices)
    return _find_at([Provider("p", "P", "https://p", models=[model])], "m", is_in_dollars=True)


def _price(amount: int) -> ModelPrice:
    return ModelPrice(input_mtok=Decimal(amount), output_mtok=Decimal(8))


def test_what_the_catalogue_does_not_say() -> None:
    """No price of reading the cache is no discount, and no price of writing is the ordinary one.

    A cached token is never dearer. A lower price of writing is what storing costs on top.
    """
    found = _model(_price(2))
    assert found.tiers == (PriceTier(0, 2.0, 2.0, 2.0, 8.0),)
    assert _model(ModelPrice(input_mtok=Decimal(2))) is None
    assert _model(ModelPrice(output_mtok=Decimal(2))) is None
    assert _model([]) is None
    odd = {"input_mtok": Decimal(2), "cache_read_mtok": Decimal(3), "cache_write_mtok": Decimal(1)}
    assert _model(ModelPrice(**odd, output_mtok=Decimal(8))).tiers == (PriceTier(0, 2.0, 2.0, 2.0, 8.0),)


def test_tiers_are_those_of_all_prices_together() -> None:
    """Each price has its own thresholds. A prompt of exactly the threshold is below it."""
    prices = ModelPrice(
        input_mtok=TieredPrices(Decimal(1), [Tier(200, Decimal(2))]),
        cache_read_mtok=Decimal("0.5"),
        output_mtok=TieredPrices(Decimal(4), [Tier(200, Decimal(6)), Tier(300, Decimal(9))]),
    )
    found = _model(prices)
    assert found.tiers == (
        PriceTier(0, 1.0, 0.5, 1.0, 4.0), PriceTier(200, 2.0, 0.5, 2.0, 6.0), PriceTier(300, 2.0, 0.5, 2.0, 9.0)
    )  # fmt: skip
    assert [found.at(tokens).above_tokens for tokens in (0, 200, 201, 300, 301)] == [0, 0, 200, 200, 300]


def test_the_prices_of_today_count_at_every_hour() -> None:
    """Of several that are in force at noon (UTC) the last one counts."""
    dates = [date(2020, 1, 1), date(2021, 1, 1), date(2999, 1, 1)]
    prices = [
        ConditionalPrice(prices=_price(1)),
        *(ConditionalPrice(StartDateConstraint(at), prices=_price(2 + index)) for index, at in enumerate(dates)),
        ConditionalPrice(TimeOfDateConstraint(time(16, 30), time(0, 30)), prices=_price(9)),
    ]
    found = _model(prices)
    assert found.tiers[0].input == 3
    busy = _model([prices[0], ConditionalPrice(TimeOfDateConstraint(time(0, 30), time(16, 30)), prices=_price(7))])
    assert busy.tiers[0].input == 7
    later = _model([prices[3]])
    assert later.tiers[0].input == 4


def test_every_price_of_the_catalogue_can_be_read() -> None:
    """No price list makes a ratio that the rules cannot use."""
    for provider in load_providers():
        for model in provider.models:
            found = _find_at([provider], model.id, is_in_dollars=True)
            for tier in found.tiers if found else ():
                ratios = found.to_ratios(tier.above_tokens + 1)
                assert 0 <= ratios.cached_input <= 1 <= ratios.cache_write
                assert all(map(isfinite, (ratios.cached_input, ratios.cache_write, ratios.output)))


def test_the_catalogue_has_a_version_and_a_date() -> None:
    told, _, date_ = describe_catalogue().partition(" of ")
    assert told == f"genai-prices {version('genai-prices')}"
    assert date.fromisoformat(date_.removesuffix(" or later")) >= date(2026, 10, 1)


@pytest.mark.parametrize(
    ("comments", "newest"),
    [
        (["No longer listed (checked 2026-10-09); kept.", None, "Verified on 2026-10-14: see the page."], "2026-10-14"),
        (["Checked on 2026-10-01: it ends on 2026-10-20.", "Retires on 2026-10-30."], "2026-10-01"),
        (["checked 2026-10-09, checked 9999-01-01, checked 2026-13-45"], "2026-10-09"),
        (["Retired on 2026-10-30.", None], "None"),
    ],
)
def test_the_age_of_the_catalogue_is_the_newest_check_that_it_tells_of(comments, newest) -> None:
    """Other dates in it are those of prices, also of later ones; a day to come is an error of writing."""
    assert str(find_newest_check(comments)) == newest


counts = st.integers(0, 10**6)
dollars = st.floats(0, 200)
tiers = st.builds(PriceTier, st.just(0), dollars, dollars, dollars, dollars)


@given(counts, st.none() | counts, st.none() | counts, st.none() | counts, tiers)
def test_the_parts_are_the_cost_of_the_usage_to_half_a_nanodollar_each(prompt, cached, written, completion, tier):
    """Whatever the upstream reports, no token of the prompt is charged for twice or not at all."""
    tokens = Tokens.of(prompt, cached, written, completion)
    cost = price(tokens, PriceList((tier,), PriceSource.CONFIGURED, is_in_dollars=True))
    assert tokens.prompt == prompt
    assert tokens.cached == min(cached or 0, prompt)
    parts = ((tokens.fresh, tier.input), (tokens.cached, tier.cached_input))
    parts += ((tokens.written, tier.cache_write), (tokens.completion, tier.output))
    exact = sum(1000 * count * Fraction(each) for count, each in parts)
    assert abs(cost.total - exact) <= 3
    assert cost.total == cost.fresh + cost.cached + cost.written + cost.completion


def test_the_length_of_the_prompt_decides_the_prices() -> None:
    """All its tokens cost what the tier says."""
    short, long = PriceTier(0, 1, 0.1, 1, 4), PriceTier(1000, 2, 0.2, 2, 8)
    prices = PriceList((short, long), PriceSource.CATALOGUE, is_in_dollars=True)
    assert price(Tokens.of(1000, completion=1), prices).total == 1000 * 1000 + 4000
    assert price(Tokens.of(1001, completion=1), prices).total == 1001 * 2000 + 8000
    assert price(Tokens.of(1000), PriceList((short,), PriceSource.DEFAULT)) is None  # ratios are no money


# Which providers and models the catalogue knows, and which upstreams are none.

OPENAI = "https://api.openai.com/v1"


LOCAL_URL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(("base_urls", "loads"), [((LOCAL_URL,), False), ((LOCAL_URL, OPENAI), True)])
def test_the_catalogue_is_loaded_only_where_it_serves(base_urls: tuple[str, ...], *, loads: bool) -> None:
    """It is not loaded if all upstreams are local, nor if all windows are configured."""
    code = (
        "import sys; from trimtab.proxy.catalogue import prices as c\n"
        f"c.load_catalogue({base_urls!r}); c.is_ready({LOCAL_URL!r})\n"
        "print('genai_prices' in sys.modules, c.is_ready('https://example.com'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(loads)] * 2


# Which models the catalogue knows.

GATEWAY = "https://llm.example.com/v1"


FUNCTIONS: dict[str, Callable[..., object]] = {
    "find_host": lambda url: getattr(find_host(url), "id", None),
    **{function.__name__: function for function in (find_window, asks_million)},
}


@pytest.mark.parametrize("law", read_tables("providers"), ids=lambda law: law["function"])
def test_each_law_of_the_table_holds(law: dict[str, Any]) -> None:
    for *arguments, answer in law["cases"]:
        assert FUNCTIONS[law["function"]](*arguments) == answer, arguments


@given(st.text(max_size=40) | st.just("gpt-4o" * MAX_NAME_CHARS))
def test_any_name_is_answered(model: str) -> None:
    """Clients may send any name; the answer is None or a window."""
    for base_url in (OPENAI, GATEWAY, "https://openrouter.ai/api/v1"):
        window_tokens = find_window(base_url, model)
        assert window_tokens is None or window_tokens >= 1024


def test_nothing_is_asked_of_the_network() -> None:
    """Loading and looking up open no socket, and do not start the package's own updates."""
    code = (
        "import sys, threading\n"
        "def refuse(event, _): assert not event.startswith('socket.'), event\n"
        "sys.addaudithook(refuse)\n"
        "from trimtab.proxy.catalogue.prices import find_window\n"
        f"assert find_window({OPENAI!r}, 'gpt-4o') == 128000\n"
        "assert threading.active_count() == 1"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_window_too_small_to_be_one_is_unknown() -> None:
    """The catalogue has figures that are no windows. The smallest of the others counts."""
    least, none = MIN_WINDOW_TOKENS, MIN_WINDOW_TOKENS - 1
    makers: list[Any] = [
        SimpleNamespace(find_model=lambda *_, tokens=tokens, **__: SimpleNamespace(context_window=tokens))
        for tokens in (none, None, least + 1, least)
    ]
    assert [_find_smallest(makers[:stop], "m") for stop in (2, 3, 4)] == [None, least + 1, least]
