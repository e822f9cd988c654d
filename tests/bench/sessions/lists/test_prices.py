"""The price lists are those of genai-prices, and trimtab is told them."""

from datetime import date

import pytest

from bench.sessions.caches.breakpoints import Breakpoints
from bench.sessions.caches.lookback import LookBack
from bench.sessions.ledger import Prices
from bench.sessions.lists.prices import MODELS, describe_source, load_lists, to_ratios, to_settings
from trimtab.proxy.config.load import load_config

ON = date(2026, 11, 23)


def test_there_are_ten_over_the_range_of_the_issue() -> None:
    """Reads from 0.02 to 0.5 of the input, writes from 1 to 2."""
    ratios = {one.name: to_ratios(one.prices) for one in load_lists("all", ON)}
    assert len(ratios) == len(MODELS) == 10
    reads = [one.cached_input for one in ratios.values()]
    assert (min(reads), max(reads)) == pytest.approx((0.02, 0.5), rel=0.05)
    assert {round(one.cache_write, 2) for one in ratios.values()} == {1.0, 1.25, 2.0}
    assert ratios["opus-1h"].cache_write == 2.0
    assert ratios["opus"] == Prices(1.0, 0.1, 5.0, 1.25)


def test_each_has_its_providers_cache() -> None:
    kinds = {one.name: one.kind for one in load_lists("all", ON)}
    assert kinds["gpt-5.6"] == Breakpoints(lifetime_seconds=1800.0)
    assert kinds["opus-1h"] == LookBack(lifetime_seconds=3600.0)


def test_tiers_for_long_prompts_are_dearer() -> None:
    (found,) = load_lists("gpt-5.6", ON)
    ((above, longer),) = found.prices.longer
    assert found.prices.at(above) is found.prices
    assert found.prices.at(above + 1) is longer
    assert longer.input > found.prices.input


def test_the_source_is_named() -> None:
    text = describe_source(load_lists("deepseek,groq", ON))
    assert text.startswith("prices: genai-prices ")
    assert "deepseek/deepseek-v4-flash" in text


def test_an_unknown_list_ends_the_program() -> None:
    with pytest.raises(SystemExit, match="known: deepseek"):
        load_lists("opus,nobody")


def test_trimtab_takes_the_settings() -> None:
    (found,) = load_lists("groq", ON)
    config = load_config(settings=to_settings(found.prices), environment={}, is_online=False)
    assert config.prices.model_dump().items() >= {"input": 1.0, "cached_input": 0.5, "output": 4.0}.items()
