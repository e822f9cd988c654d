"""The ledger's sums: what calls cost, and what was lost."""

import pytest

from bench.sessions.caches.longest import LongestPrefix
from bench.sessions.ledger import Call, Prices, SessionLedger, price, price_call, price_loss
from bench.sessions.prompts import Part

PRICES = Prices(input=2.0, cached_input=0.2, output=10.0, cache_write=2.5)


def test_a_call_costs_its_fresh_cached_written_and_completion_tokens() -> None:
    call = Call(is_summary=True, prompt_tokens=100, cached_tokens=50, completion_tokens=7, written_tokens=30)
    assert price_call(call, PRICES) == pytest.approx(20 * 2.0 + 50 * 0.2 + 30 * 2.5 + 7 * 10.0)


def test_a_long_prompt_costs_what_its_tier_says_in_all_its_tokens() -> None:
    prices = Prices(1.0, 0.1, 4.0, 1.0, longer=((200, Prices(2.0, 0.2, 6.0, 2.0)),))
    short, long = (Call(is_summary=False, prompt_tokens=tokens, cached_tokens=0) for tokens in (200, 201))
    assert price_call(short, prices) == pytest.approx(200.0)
    assert price_call(long, prices) == pytest.approx(402.0)


def test_a_loss_is_the_difference_to_having_read_what_was_lost() -> None:
    head, task = Part("system", "head", 2048), Part("user", "task", 100)
    lives, expires = (SessionLedger(LongestPrefix(lifetime_seconds=seconds)) for seconds in (None, 300.0))
    for ledger in (lives, expires):
        for moment in (0.0, 1000.0):
            ledger.now_seconds = moment
            ledger.add_turn((head, task))
    assert price_loss(lives.calls, PRICES) == 0.0
    assert price_loss(expires.calls, PRICES) == pytest.approx(price(expires.calls, PRICES) - price(lives.calls, PRICES))


def test_a_turn_that_was_refused_on_the_way_is_counted() -> None:
    """A summary belongs to the turn after which it was asked for."""
    ledger = SessionLedger(LongestPrefix())
    part = Part("user", "task", 10)
    ledger.add_turn((part,))
    ledger.end_turn(1)
    ledger.add_turn((part,))
    ledger.add_summary((part,), 5)
    assert [(request.turn, request.is_summary) for request in ledger.requests] == [(0, False), (2, False), (2, True)]
    assert len(ledger.prompts) == 2
