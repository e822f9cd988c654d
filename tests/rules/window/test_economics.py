"""Whether a cut pays."""

from dataclasses import replace

import pytest
from support.builders import assistant, system, user

from rules.policy import Policy, Prices
from rules.window.cut_candidates import Cuts
from rules.window.economics import PATIENCE, Economics
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


def test_what_costs_nothing_pays_at_once() -> None:
    """Anything else pays only after a wait."""
    cuts, window, chosen = cut_in_two(POLICY)
    assert Economics(Prices(0.0, 0.0, 0.0, 0.0)).pays(cuts, window, chosen)
    assert not Economics(POLICY.prices).pays(cuts, window, chosen)


def test_a_cut_pays_once_waiting_has_cost_a_share_of_its_price() -> None:
    """What stays is read without the cache, the summary is written, and the call for it reads the cache."""
    cuts, window, chosen = cut_in_two(POLICY)
    prices = POLICY.prices
    fresh = cuts.size(chosen) - cuts.open_tokens
    price = fresh * (prices.input - prices.cached_input) + 200 * prices.output + cuts.size(window) * prices.cached_input
    gain = cuts.size(window) - cuts.size(chosen)
    waits = 0
    economics = Economics(prices)
    while not economics.pays(cuts, window, chosen):
        waits += 1
        economics.wait(gain)
    assert waits == -(-price * PATIENCE // (gain * prices.cached_input))
    assert waits > 0


@pytest.mark.parametrize("output", [1.0, 8.0])
def test_a_digest_is_written_for_nothing(output: float) -> None:
    """No model is asked, so the price of a completion does not matter."""
    policy = replace(POLICY, summary_min_steps=99, prices=replace(POLICY.prices, output=output))
    cuts, window, chosen = cut_in_two(policy)
    economics, gain = Economics(policy.prices), cuts.size(window) - cuts.size(chosen)
    waits = 0
    while not economics.pays(cuts, window, chosen):
        waits += 1
        economics.wait(gain)
    fresh = cuts.size(chosen) - cuts.open_tokens
    assert waits == -(-fresh * 0.9 * PATIENCE // (gain * 0.1))
