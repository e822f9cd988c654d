"""The prices in the report of `trimtab doctor`."""

import io
import re

from rich.console import Console

from trimtab.proxy.catalogue.prices import DEFAULT, LOCAL, describe_catalogue, find_listed
from trimtab.proxy.cli.doctor import ModelPrices, check_budgets, check_prices, list_rows, make_table
from trimtab.proxy.config.load import load_config

OPENAI = "https://api.openai.com/v1"
TIERED = ModelPrices.of(find_listed("https://api.anthropic.com/v1", "claude-sonnet-4-5"))


def test_the_catalogue_is_named_with_its_date() -> None:
    found = check_prices([("c", TIERED)])
    assert (found.level, found.found) == ("ok", f"from {describe_catalogue()}")
    assert re.fullmatch(r"from genai-prices [\d.]+ of \d{4}-\d\d-\d\d or later", found.found)


def test_models_without_known_prices_are_named() -> None:
    """The usual ratios are assumed for them."""
    models = [("a", ModelPrices.of(DEFAULT)), ("b", ModelPrices.of(LOCAL)), ("c", TIERED), ("d", None)]
    found = check_prices(models)
    assert (found.level, found.found.rpartition("; ")[2]) == ("warning", "unknown for a")
    many = check_prices([(f"m{number}", models[0][1]) for number in range(6)])
    assert many.found.endswith("m4 and others")


def test_a_budget_in_dollars_needs_prices_in_dollars() -> None:
    """Else it looks like a limit and is none. A budget in tokens needs no prices."""
    clients = "{a: {key: x, dollars_per_day: 5}, b: {key: y, tokens_per_day: 5}, c: {key: z, dollars_per_month: 5}}"
    config = load_config(settings=[f"client_keys={clients}"], environment={})
    models = [("m", ModelPrices.of(DEFAULT)), ("l", ModelPrices.of(LOCAL)), ("c", TIERED), ("d", None)]
    (found,) = check_budgets(config, models)
    assert (found.level, found.found) == ("warning", "a, c: in dollars, of which requests to m, l spend none")
    assert check_budgets(config, [("c", TIERED)]) == []
    tokens = load_config(settings=["client_keys={b: {key: y, tokens_per_day: 5}}"], environment={})
    assert check_budgets(tokens, models) == []


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
