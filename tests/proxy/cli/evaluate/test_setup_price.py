"""What an evaluation costs."""

import pytest

from trimtab.proxy.catalogue.prices import DEFAULT, PriceList, PriceSource, PriceTier, find_listed
from trimtab.proxy.cli.evaluate.asking import Tokens
from trimtab.proxy.cli.evaluate.setup import Item, add_up, find_dollars, weigh

OPENAI = "https://api.openai.com/v1"
GPT = find_listed(OPENAI, "gpt-4o")


def test_tokens_add_up_and_weigh_by_the_ratios() -> None:
    items = [Item("a", "m", GPT, Tokens(2, 100, 10)), Item("b", "m", GPT, Tokens(1, 50, 5))]
    assert add_up(items) == Tokens(3, 150, 15)
    assert weigh(add_up(items), DEFAULT) == 150 + 4 * 15
    prices = PriceList((PriceTier(0, 2.0, 0.2, 2.0, 10.0),), PriceSource.CONFIGURED)
    assert weigh(add_up(items), prices) == 150 + 5 * 15


def test_money_is_named_where_the_catalogue_knows_the_price() -> None:
    """A hundred calls of ten thousand tokens cost a hundred times one such call."""
    one = find_dollars([Item("a", "gpt-4o", GPT, Tokens(1, 10_000, 1_000))])
    many = find_dollars([Item("a", "gpt-4o", GPT, Tokens(100, 1_000_000, 100_000))])
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
    items = [
        Item("a", "gpt-4o", GPT, Tokens(1, 10, 1)),
        Item("b", model, find_listed(base_url, model), Tokens(1, 10, 1)),
    ]
    assert find_dollars(items) is None


def test_what_is_not_asked_needs_no_price() -> None:
    items = [Item("a", "gpt-4o", GPT, Tokens(1, 10, 1)), Item("b", "no-such-model", DEFAULT, Tokens())]
    assert find_dollars(items) is not None
    assert find_dollars([]) == 0


def test_dollars_go_by_the_length_of_a_prompt() -> None:
    """All tokens of a call cost what the tier of its prompt says."""
    tiers = PriceTier(0, 1.0, 0.1, 1.0, 4.0), PriceTier(1000, 2.0, 0.2, 2.0, 8.0)
    prices = PriceList(tiers, PriceSource.CONFIGURED, is_in_dollars=True)
    assert find_dollars([Item("a", "m", prices, Tokens(2, 2000, 50))]) == pytest.approx((2000 + 200) / 1e6)
    assert find_dollars([Item("a", "m", prices, Tokens(2, 2002, 50))]) == pytest.approx((4004 + 400) / 1e6)
