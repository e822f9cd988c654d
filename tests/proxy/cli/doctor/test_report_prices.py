"""The prices in the report of `trimtab doctor`."""

import io
import re

from rich.console import Console

from trimtab.proxy.catalogue.prices import DEFAULT, LOCAL, describe_catalogue, find_listed
from trimtab.proxy.cli.doctor.report import ModelPrices, check_prices, list_rows, make_table
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config

OPENAI = "https://api.openai.com/v1"
TIERED = ModelPrices.of(find_listed("https://api.anthropic.com/v1", "claude-sonnet-4-5"))


def _load(text: str) -> Config:
    return load_config(text, environment={})


def test_it_says_where_prices_come_from() -> None:
    """Each part of the configuration is named if it differs from the main upstream. The catalogue has a date."""
    catalogue = f"from {describe_catalogue()}"
    assert re.fullmatch(r"from genai-prices [\d.]+ of \d{4}-\d\d-\d\d or later", catalogue)
    assert check_prices(_load(""), ()).found == f"the main upstream: {catalogue}"
    text = (
        "{upstreams: {own: {base_url: 'http://10.0.0.1/v1'}},"
        " models: [{match: 'a*', prices: {output: 9}}, {match: b, mode: off}, {match: c, upstream: own}],"
        " profiles: {p: {prices: {input: 2}}}}"
    )
    found = check_prices(_load(text), ())
    assert found.level == "ok"
    assert found.found == (
        f"the main upstream: {catalogue}; a*: configured; c: by time, as of a local server; profile p: configured"
    )


def test_models_without_known_prices_are_named() -> None:
    """The usual ratios are assumed for them."""
    models = [("a", ModelPrices.of(DEFAULT)), ("b", ModelPrices.of(LOCAL)), ("c", TIERED), ("d", None)]
    found = check_prices(_load(""), models)
    assert (found.level, found.found.rpartition("; ")[2]) == ("warning", "unknown for a")
    many = check_prices(_load(""), [(f"m{number}", models[0][1]) for number in range(6)])
    assert many.found.endswith("m4 and others")


def test_every_tier_has_a_row() -> None:
    """Only the first one names the model and where its prices come from."""
    assert (TIERED.source, TIERED.entry, TIERED.unit) == ("catalogue", "anthropic/claude-sonnet-4-5", "usd")
    first, second = list_rows("m", TIERED)
    assert first[:5] == ("m", "catalogue", "anthropic/claude-sonnet-4-5", "usd", "0")
    assert second[:4] == ("",) * 4
    assert int(second[4].replace(",", "")) > 0
    assert [float(price) for price in first[5:]] == [
        TIERED.tiers[0].input, TIERED.tiers[0].cached_input, TIERED.tiers[0].cache_write, TIERED.tiers[0].output
    ]  # fmt: skip
    table = make_table()
    table.add_row(*first)
    printed = io.StringIO()
    Console(file=printed, width=200).print(table)
    assert "anthropic/claude-sonnet-4-5" in printed.getvalue()
