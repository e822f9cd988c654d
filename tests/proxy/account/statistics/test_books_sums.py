"""Sums are exact in any order, and what is saved is what is left."""

from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.account.statistics.books import NAMES, Sums, go_back, name_day
from trimtab.proxy.catalogue.prices import Bill, Cost, Tokens

sums = st.builds(Sums, *[st.integers(0, 2**50)] * len(NAMES))


@given(sums, sums, sums)
def test_sums_are_the_same_in_any_order(one, two, three) -> None:
    assert one + (two + three) == (three + one) + two
    assert (one + two).saved_nanodollars == one.saved_nanodollars + two.saved_nanodollars


def test_a_loss_is_negative() -> None:
    bill = Bill(Tokens.of(10), Tokens.of(9), Cost(fresh=10), Cost(fresh=9))
    summary = Sums.of_summary(Tokens.of(5, completion=2), Cost(fresh=5, completion=2))
    total = Sums.of_bill(bill) + summary
    assert (total.cost_nanodollars, total.saved_nanodollars) == (17, -8)
    assert (total.summaries, total.summary_tokens) == (1, 7)


def test_what_has_no_price_is_counted_but_not_in_the_money() -> None:
    total = Sums.of_bill(Bill(Tokens.of(10), Tokens.of(20))) + Sums.of_summary(Tokens.of(5), None)
    assert (total.requests, total.unpriced_requests, total.unpriced_summaries) == (1, 1, 1)
    assert (total.original_tokens, total.sent_tokens) == (20, 10)
    assert total.cost_nanodollars == total.without_nanodollars == 0


def test_days_are_in_utc() -> None:
    assert name_day(0.0) == "1970-01-01"
    assert go_back("2028-03-01", 1) == "2028-02-29"
