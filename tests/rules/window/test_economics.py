"""Whether a cut pays."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import assistant, system, user

from trimtab.rules.conversation import Message
from trimtab.rules.policy import Policy, Prices
from trimtab.rules.window.cut_candidates import Cuts
from trimtab.rules.window.cut_decision import Fold
from trimtab.rules.window.economics import (
    AHEAD_SHARE,
    COLD_SHARE,
    NOTE_SHARE,
    PATIENCE,
    SILENCE_SECONDS,
    SILENCE_SHARE,
    Economics,
    note_marks,
    pays_cold,
)
from trimtab.rules.window.room import Room
from trimtab.rules.window.state import Change, ColdCut, ColdSummary, Window
from trimtab.rules.window.sums import Sums

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


MESSAGES = (system(), user("Mend the build."), *(assistant("word " * 100) for _ in range(40)))
ROOM = Room.measure(MESSAGES, 0, LIMIT)


def cut_in_two(policy: Policy) -> tuple[Cuts, Window, Window]:
    sums = Sums(1)
    for message in MESSAGES:
        sums.add(message)
    cuts = Cuts(ROOM, policy, sums)
    window = Window(task=1)
    return cuts, window, cuts.cut_at(window, 32)


LONG_TOKENS = 1_000_000
"""A request that has cost enough for any first cut."""


def begin(policy: Policy, *, spent_tokens: int = LONG_TOKENS) -> Economics:
    economics = Economics(policy.prices, policy.risk_share)
    economics.send(spent_tokens, spent_tokens)
    return economics


def pays(economics: Economics, change: Change, more_tokens: int = 0) -> bool:
    return economics.pays(economics.price(change), more_tokens)


def count_waits(economics: Economics, cuts: Cuts, window: Window, chosen: Window) -> int:
    gain, waits = cuts.size(window) - cuts.size(chosen), 0
    while not pays(economics, cuts.compare(window, chosen)):
        waits += 1
        economics.wait(gain)
        assert waits < 1000
    return waits


def price_note(cuts: Cuts, window: Window, prices: Prices) -> float:
    """What the summary of `cut_in_two` is expected to cost; its request reads the cache."""
    return 200 * NOTE_SHARE * prices.output + cuts.size(window) * prices.cached_input


def test_what_costs_nothing_pays_at_once() -> None:
    cuts, window, chosen = cut_in_two(POLICY)
    assert pays(Economics(Prices(0.0, 0.0, 0.0, 0.0), 0.1), cuts.compare(window, chosen))
    assert not pays(begin(POLICY), cuts.compare(window, chosen))


def test_a_cut_pays_once_waiting_has_cost_a_share_of_its_price() -> None:
    """What stays is written to the cache, and so is the open step, because the summary comes a request later."""
    cuts, window, chosen = cut_in_two(POLICY)
    prices = POLICY.prices
    price = cuts.size(chosen) * (prices.cache_write - prices.cached_input) + price_note(cuts, window, prices)
    gain = cuts.size(window) - cuts.size(chosen)
    waits = count_waits(begin(POLICY), cuts, window, chosen)
    assert waits == -(-price * PATIENCE // (gain * prices.cached_input))
    assert waits > 0


def test_a_digest_is_written_for_nothing() -> None:
    """No model is asked, so the price of a completion does not matter."""
    policy = replace(POLICY, summary_min_steps=99, prices=structs.replace(POLICY.prices, output=8.0))
    cuts, window, chosen = cut_in_two(policy)
    gain = cuts.size(window) - cuts.size(chosen)
    fresh = cuts.size(chosen) - cuts.open_tokens
    assert count_waits(begin(policy), cuts, window, chosen) == -(-fresh * 0.9 * PATIENCE // (gain * 0.1))


@pytest.mark.parametrize("prices", [Prices(), Prices(1, 0.1, 5, 2)])
def test_a_cut_waits_until_the_session_can_bear_it(prices: Prices) -> None:
    """It may add the risk share to what the session would have cost without any cut, however long waiting was."""
    cuts, window, chosen = cut_in_two(replace(POLICY, prices=prices))
    price = cuts.size(chosen) * (prices.cache_write - prices.cached_input) + price_note(cuts, window, prices)
    enough = price / POLICY.risk_share / prices.cache_write
    verdicts = []
    for spent_tokens in (int(enough * 0.99), int(enough * 1.01)):
        economics = begin(replace(POLICY, prices=prices), spent_tokens=spent_tokens)
        economics.wait(10**9)
        verdicts.append(pays(economics, cuts.compare(window, chosen)))
    assert verdicts == [False, True]


def test_a_session_that_cannot_bear_a_summary_gets_a_digest() -> None:
    """Unless it cannot bear that either, or the summary was asked for before."""
    cuts, window, chosen = cut_in_two(POLICY)
    change = cuts.compare(window, chosen)
    fresh = (cuts.size(chosen) - cuts.open_tokens) * (POLICY.prices.cache_write - POLICY.prices.cached_input)
    least = int(fresh / POLICY.risk_share / POLICY.prices.cache_write)
    rich, poor = begin(POLICY), begin(POLICY, spent_tokens=least + 2)
    there = structs.replace(change, before=structs.replace(window, prefetch_tokens=200))
    assert not rich.is_heavy(change, rich.price(change))
    assert not poor.is_heavy(there, poor.price(there))
    assert poor.is_heavy(change, poor.price(change))
    lighter = change.with_digest()
    assert not poor.is_heavy(lighter, poor.price(change))
    assert (change.asks, lighter.asks) == (True, False)
    for economics, bears in ((poor, True), (begin(POLICY, spent_tokens=least - 2), False)):
        economics.wait(10**9)
        assert (pays(economics, change), pays(economics, lighter)) == (False, bears)


def test_what_earlier_cuts_saved_bears_the_next_one() -> None:
    """A cut that was made has cost its price, and waiting begins anew; what it saved counts from then on."""
    cuts, window, chosen = cut_in_two(POLICY)
    economics = begin(POLICY)
    economics.wait(10**9)
    assert pays(economics, cuts.compare(window, chosen))
    for _ in range(200):
        economics.cut(cuts.compare(window, chosen))
    assert not pays(economics, cuts.compare(window, chosen))
    economics.wait(10**9)
    assert not pays(economics, cuts.compare(window, chosen))
    economics.send(1000, 20 * LONG_TOKENS)
    assert pays(economics, cuts.compare(window, chosen))
    assert pays(begin(POLICY), cuts.compare(window, chosen), 10**9)


def test_a_window_notes_which_marks_it_has_reached() -> None:
    """It never forgets, and a prompt of exactly that many tokens has reached the mark."""
    cuts, window, _ = cut_in_two(POLICY)
    low, high = cuts.marks.low, cuts.marks.high
    cold = low + int((high - low) * COLD_SHARE)
    for tokens, is_long, is_high in ((cold - 1, False, False), (cold, True, False), (high, True, True)):
        noted = note_marks(cuts, window, tokens)
        assert (noted.is_long, noted.is_high) == (is_long, is_high)
        assert note_marks(cuts, noted, 0) is noted
    assert note_marks(cuts, window, 0) is window


CHAT = replace(POLICY, prices=Prices(1.0, 0.01, 0.5))
"""Prices at which a chat as short as in these tests can bear a summary that it may not need."""


def chat(turns: int, words: int = 60) -> list[Message]:
    messages = [system(), user("Mend the build.")]
    for number in range(turns):
        messages += [assistant(f"answer {number} " * words), user(f"question {number}")]
    return messages


def fold_to(messages: list[Message], policy: Policy, cold: dict[int, ColdCut] | None = None) -> Window:
    return Fold(Room.measure(messages, 0, LIMIT), policy).extend(messages, cold=cold or {}).finish()


def test_a_summary_pays_if_a_long_silence_is_likely_enough() -> None:
    """What it saves is weighed with the probability of a silence, which falls with the cache's lifetime."""
    dear = ColdSummary(9, 100, 1000, price=SILENCE_SHARE * 1000, saving=1000)
    assert not pays_cold(dear, SILENCE_SECONDS)
    cheap = structs.replace(dear, price=SILENCE_SHARE * 1000 - 1)
    assert pays_cold(cheap, SILENCE_SECONDS)
    assert pays_cold(cheap, 60.0)
    assert not pays_cold(cheap, SILENCE_SECONDS + 60)
    assert pays_cold(structs.replace(cheap, price=SILENCE_SHARE * 499), 4 * SILENCE_SECONDS)
    assert not pays_cold(structs.replace(cheap, price=SILENCE_SHARE * 501), 4 * SILENCE_SECONDS)


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


@pytest.mark.parametrize(("bears", "is_named"), [(1.5, False), (2.5, True)])
def test_a_summary_that_was_written_ahead_counts_once(bears: float, is_named: bool) -> None:  # noqa: FBT001
    """Against the share of the session's cost that all of them may have, however many turns it serves."""
    cuts, window, _ = cut_in_two(CHAT)
    window, size = structs.replace(window, is_long=True), cuts.size(window)
    cold = begin(CHAT).plan_cold_summary(cuts, window, size).cold_summary
    economics = begin(CHAT, spent_tokens=int(bears * cold.price / AHEAD_SHARE / CHAT.prices.cache_write))
    assert economics.plan_cold_summary(cuts, window, size).cold_summary == cold
    for _ in range(2):
        economics.note_turn(structs.replace(window, cold_summary=cold))
    assert (economics.plan_cold_summary(cuts, window, size).cold_summary == cold) is is_named
