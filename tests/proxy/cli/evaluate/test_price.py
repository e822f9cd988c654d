"""What an evaluation costs."""

import pytest

from proxy.cli.evaluate.price import Item, Tokens, add_up, find_dollars
from proxy.config.schema import PricesConfig

OPENAI = "https://api.openai.com/v1"


def test_tokens_add_up_and_weigh_by_the_configured_ratios() -> None:
    items = [Item("a", "m", OPENAI, Tokens(2, 100, 10)), Item("b", "m", OPENAI, Tokens(1, 50, 5))]
    assert add_up(items) == Tokens(3, 150, 15)
    assert add_up(items).weigh(PricesConfig()) == 150 + 4 * 15
    assert add_up(items).weigh(PricesConfig(input=2.0, output=10.0)) == 150 + 5 * 15


def test_money_is_named_where_the_catalogue_knows_the_price() -> None:
    """A hundred calls of ten thousand tokens cost a hundred times one such call."""
    one = find_dollars([Item("a", "gpt-4o", OPENAI, Tokens(1, 10_000, 1_000))])
    many = find_dollars([Item("a", "gpt-4o", OPENAI, Tokens(100, 1_000_000, 100_000))])
    assert one is not None
    assert many is not None
    assert many == pytest.approx(100 * one)
    assert 0.01 < one < 1


@pytest.mark.parametrize(
    ("model", "base_url"),
    [("no-such-model", OPENAI), ("gpt-4o", "http://127.0.0.1:8000/v1"), ("gpt-4o", "https://gateway.example.com/v1")],
)
def test_money_is_not_guessed(model: str, base_url: str) -> None:
    """There is no price for an unknown model, or for a model at a server with unknown prices."""
    items = [Item("a", "gpt-4o", OPENAI, Tokens(1, 10, 1)), Item("b", model, base_url, Tokens(1, 10, 1))]
    assert find_dollars(items) is None


def test_what_is_not_asked_needs_no_price() -> None:
    items = [Item("a", "gpt-4o", OPENAI, Tokens(1, 10, 1)), Item("b", "no-such-model", OPENAI, Tokens())]
    assert find_dollars(items) is not None
    assert find_dollars([]) == 0
