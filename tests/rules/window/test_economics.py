"""Whether a cut pays."""

from dataclasses import replace

import pytest
from support.builders import assistant, system, user

from rules.policy import Policy, Prices
from rules.window.cut_candidates import Cuts
from rules.window.economics import AHEAD_SHARE, FIRST_SHARE, NOTE_SHARE, PATIENCE, Economics
from rules.window.room import Room
from rules.window.state import Window
from rules.window.sums import Sums

LIMIT = 10_000
POLICY = Policy(
    summary_max_tokens=200,
    summary_min_steps=2,
    keep_user_tokens=0,
    prices=Prices(1.0, 0.1, 4.0),
    high_water=0.8,
    low_water=0.4,
    anchor_share=0.06,
)


def cut_in_two(policy: Policy) -> tuple[Cuts, Window, Window]:
    """A window of forty answers, and one with the first thirty cut."""
    messages = (system(), user("Mend the build."), *(assistant("word " * 100) for _ in range(40)))
    sums = Sums(1)
    for message in messages:
        sums.add(message)
    cuts = Cuts(Room.measure(messages, 0, LIMIT), policy, sums)
    window = Window(task=1)
    return cuts, window, cuts.cut_at(window, 32)


LONG_TOKENS = 1_000_000
"""A request that has cost enough for any first cut."""


def begin(policy: Policy, *, spent_tokens: int = LONG_TOKENS) -> Economics:
    """The economics of a session that has sent this much."""
    economics = Economics(policy.prices)
    economics.send(spent_tokens)
    return economics


def count_waits(economics: Economics, cuts: Cuts, window: Window, chosen: Window) -> int:
    """Requests until the cut pays."""
    gain, waits = cuts.size(window) - cuts.size(chosen), 0
    while not economics.pays(cuts, window, chosen):
        waits += 1
        economics.wait(gain)
        assert waits < 1000
    return waits


def price_note(cuts: Cuts, window: Window, prices: Prices) -> float:
    """What the summary of `cut_in_two` is expected to cost; its request reads the cache."""
    return 200 * NOTE_SHARE * prices.output + cuts.size(window) * prices.cached_input


def test_what_costs_nothing_pays_at_once() -> None:
    """Anything else pays only after a wait."""
    cuts, window, chosen = cut_in_two(POLICY)
    assert Economics(Prices(0.0, 0.0, 0.0, 0.0)).pays(cuts, window, chosen)
    assert not begin(POLICY).pays(cuts, window, chosen)


def test_a_cut_pays_once_waiting_has_cost_a_share_of_its_price() -> None:
    """What stays is written to the cache, and so is the open step, because the summary comes a request later."""
    cuts, window, chosen = cut_in_two(POLICY)
    prices = POLICY.prices
    price = cuts.size(chosen) * (prices.cache_write - prices.cached_input) + price_note(cuts, window, prices)
    gain = cuts.size(window) - cuts.size(chosen)
    waits = count_waits(begin(POLICY), cuts, window, chosen)
    assert waits == -(-price * PATIENCE // (gain * prices.cached_input))
    assert waits > 0


def test_a_summary_that_is_there_makes_the_cut_cheaper_by_the_open_step() -> None:
    """The upstream reads the open step for the first time anyway."""
    policy = replace(POLICY, prices=replace(POLICY.prices, cached_input=0.01))
    cuts, window, chosen = cut_in_two(policy)
    there = replace(window, prefetch_tokens=200)
    assert count_waits(begin(policy), cuts, there, chosen) < count_waits(begin(policy), cuts, window, chosen)


@pytest.mark.parametrize("output", [1.0, 8.0])
def test_a_digest_is_written_for_nothing(output: float) -> None:
    """No model is asked, so the price of a completion does not matter."""
    policy = replace(POLICY, summary_min_steps=99, prices=replace(POLICY.prices, output=output))
    cuts, window, chosen = cut_in_two(policy)
    gain = cuts.size(window) - cuts.size(chosen)
    fresh = cuts.size(chosen) - cuts.open_tokens
    assert count_waits(begin(policy), cuts, window, chosen) == -(-fresh * 0.9 * PATIENCE // (gain * 0.1))


@pytest.mark.parametrize("prices", [Prices(), Prices(1, 0.02, 4), Prices(1, 0.5, 1.1), Prices(1, 0.1, 5, 2)])
def test_the_first_cut_waits_until_it_is_a_small_share_of_the_cost_of_the_session(prices: Prices) -> None:
    """However long waiting for it was. A later cut does not wait for that."""
    cuts, window, chosen = cut_in_two(replace(POLICY, prices=prices))
    price = cuts.size(chosen) * (prices.cache_write - prices.cached_input) + price_note(cuts, window, prices)
    enough = price / FIRST_SHARE / prices.cache_write
    verdicts = []
    for spent_tokens in (int(enough * 0.99), int(enough * 1.01)):
        economics = begin(replace(POLICY, prices=prices), spent_tokens=spent_tokens)
        economics.wait(10**9)
        verdicts.append(economics.pays(cuts, window, chosen))
        assert economics.is_dear(cuts, window, chosen) is not verdicts[-1]
        assert economics.pays(cuts, replace(window, prune_stop=3), chosen)
    assert verdicts == [False, True]


def test_a_request_reads_what_the_one_before_it_had() -> None:
    """So the second and third request cost a tenth of the first: 0.85, 0.935 and 1.02 of what is needed."""
    cuts, window, chosen = cut_in_two(POLICY)
    cut, prices = chosen.cuts[-1], POLICY.prices
    enough = price_note(cuts, window, prices) / AHEAD_SHARE
    economics, verdicts = Economics(prices), []
    for _ in range(3):
        economics.send(int(0.85 * enough))
        verdicts.append(economics.pays_ahead(cuts, window, cut))
    assert verdicts == [False, False, True]
