"""The figures of an exchange with several rounds. tests/end_to_end/test_recall.py has the rounds themselves."""

from trimtab.proxy.account.outcome import Answered
from trimtab.proxy.catalogue.prices import Bill, Cost, PriceList, PriceTier, Tokens
from trimtab.proxy.exchange.answer import Learned
from trimtab.proxy.exchange.attempt import Passed
from trimtab.proxy.exchange.recall import add_round, takes_calls

FIRST = Learned(Answered(100, 0, 10, ends_turn=False), bill=Bill(Tokens(100, 0, 0, 10), Tokens(100, 0, 0, 10)))


NO_PRICES = PriceList((PriceTier(0, 1.0, 0.1, 1.0, 4.0),), "default")


def test_all_rounds_are_in_the_bill() -> None:
    """What it would have cost without trimtab stays; the prompt's figures are those of the first round."""
    learned = add_round(FIRST, Answered(130, 100, 20, ends_turn=True), 90, NO_PRICES)
    assert learned.bill.tokens == Tokens(130, 100, 0, 30)
    assert learned.bill.without == Tokens(100, 0, 0, 10)
    assert (learned.answered.prompt_tokens, learned.answered.completion_tokens) == (100, 30)
    assert learned.answered.ends_turn
    assert (learned.recall_rounds, learned.recall_prompt_tokens) == (1, 130)
    again = add_round(learned, Answered(150, 130, 5), 90, NO_PRICES)
    assert (again.recall_rounds, again.recall_prompt_tokens, again.bill.tokens.completion) == (2, 280, 35)


def test_a_round_without_usage_is_estimated_and_a_cost_that_is_not_known_stays_unknown() -> None:
    learned = add_round(FIRST, Answered(completion_tokens=4, is_estimated=True), 90, NO_PRICES)
    assert (learned.bill.is_estimated, learned.bill.tokens.fresh) == (True, 190)
    priced = Learned(FIRST.answered, bill=Bill(Tokens(), Tokens(), Cost(5), Cost(5)))
    unknown = Bill(Tokens(30, 100, 0, 20), Tokens(), None, Cost(5))
    assert add_round(priced, Answered(130, 100, 20), 90, NO_PRICES).bill == unknown
    assert add_round(Learned(FIRST.answered), Answered(130), 90, NO_PRICES).bill is None
    assert not takes_calls(Passed("off"))
