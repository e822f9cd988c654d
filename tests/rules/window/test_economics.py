"""Whether a cut pays."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, system, user

from rules.conversation import Message
from rules.policy import Policy, Prices
from rules.window.cut_candidates import Cuts
from rules.window.cut_decision import Fold
from rules.window.economics import AHEAD_SHARE, PATIENCE, SILENCE_SECONDS, SILENCE_SHARE, Economics, pays_cold
from rules.window.room import Room
from rules.window.state import ColdCut, ColdSummary, Window
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


CHAT = replace(POLICY, prices=Prices(1.0, 0.01, 0.5))
"""Prices at which a chat as short as in these tests can bear a summary that it may not need."""


def chat(turns: int, words: int = 60) -> list[Message]:
    """A conversation without tools: nothing of it can be pruned."""
    messages = [system(), user("Mend the build.")]
    for number in range(turns):
        messages += [assistant(f"answer {number} " * words), user(f"question {number}")]
    return messages


def fold_to(messages: list[Message], policy: Policy, cold: dict[int, ColdCut] | None = None) -> Window:
    """The window of a request with these messages."""
    return Fold(Room.measure(messages, 0, LIMIT), policy).extend(messages, cold=cold or {}).finish()


def test_a_summary_pays_if_a_long_silence_is_likely_enough() -> None:
    """What it saves is weighed with the probability of a silence, which falls with the cache's lifetime."""
    dear = ColdSummary(9, 100, 1000, price=SILENCE_SHARE * 1000, saving=1000)
    assert not pays_cold(dear, SILENCE_SECONDS)
    cheap = replace(dear, price=SILENCE_SHARE * 1000 - 1)
    assert pays_cold(cheap, SILENCE_SECONDS)
    assert pays_cold(cheap, 60.0)
    assert not pays_cold(cheap, SILENCE_SECONDS + 60)
    assert pays_cold(replace(cheap, price=SILENCE_SHARE * 499), 4 * SILENCE_SECONDS)
    assert not pays_cold(replace(cheap, price=SILENCE_SHARE * 501), 4 * SILENCE_SECONDS)


@given(turns=st.integers(4, 40), words=st.integers(20, 90), more=st.integers(1, 4))
def test_the_cold_cut_of_the_next_request_finds_the_summary(turns: int, words: int, more: int) -> None:
    """It ends at the message at which the summary ended that the request before named, whatever the answer said."""
    before = chat(turns, words)
    named = fold_to(before, CHAT).cold_summary
    after = [*before, assistant("A short answer."), user("word " * 10 * more)]
    usual = fold_to(after, CHAT)
    window = fold_to(after, CHAT, {len(after): ColdCut.CUT})
    if named is not None and window.cuts != usual.cuts and usual.next_cut is None:
        assert window.cuts[-1].at == named.at
        assert window.cuts[-1].reserved_tokens == named.reserved_tokens


def test_a_long_chat_names_one() -> None:
    """One with dear summaries, or with prices at which the session cannot bear one, names none."""
    named = [fold_to(chat(turns), CHAT).cold_summary for turns in range(4, 40, 3)]
    assert any(named)
    assert named[0] is None
    for prices in (Prices(1.0, 0.01, 40.0), Prices(1.0, 1.0, 0.5)):
        policy = replace(CHAT, prices=prices)
        assert not any(fold_to(chat(turns), policy).cold_summary for turns in range(4, 40, 3))


def test_all_that_is_written_ahead_costs_a_small_share() -> None:
    """Each turn of a chat that is never silent may have a summary, yet only few are named, and they are borne."""
    named = {cold for turns in range(4, 100, 6) if (cold := fold_to(chat(turns), CHAT).cold_summary)}
    least_tokens = sum(message.tokens for message in chat(120))
    requests = (sum(message.tokens for message in chat(turns)[-2:]) for turns in range(120))
    spent = least_tokens + sum(requests) + 120 * LIMIT * CHAT.prices.cached_input
    assert 1 <= len(named) <= 30
    assert sum(cold.price for cold in named) <= spent * AHEAD_SHARE


def test_a_step_forward_keeps_the_summary_that_is_named() -> None:
    """Until another one would free much more, or a cut was made; so several turns ask for one summary."""
    named = [fold_to(chat(turns), CHAT).cold_summary for turns in range(4, 44, 2)]
    pairs = [(old, new) for old, new in pairwise(named) if old and new]
    assert any(old == new for old, new in pairs)
