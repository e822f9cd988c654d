"""A threshold that is set is a trigger: the first request that reaches it is cut, at any prices.

Without one, prices decide, and a session that ends inside its window costs little more than without any cut.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, fill, session, user
from support.policies import by_economy

from trimtab.rules.conversation import Message, Role
from trimtab.rules.economy import Economy
from trimtab.rules.policy import Policy, Prices
from trimtab.rules.window.cut_decision import Fold
from trimtab.rules.window.economics import NOTE_SHARE
from trimtab.rules.window.prune import PLACEHOLDER_TOKENS
from trimtab.rules.window.room import Room
from trimtab.rules.window.state import CutKind, Window

LIMIT = 8000
POLICY = Policy(
    protect_turns=0,
    keep_user_tokens=100,
    summary_max_tokens=150,
    summary_min_steps=3,
    anchor_share=0.06,
    cuts_at_threshold=True,
)
VALUES = st.integers(10, 95).map(lambda percent: percent / 100)
PRICES = st.sampled_from(
    [Prices(), Prices(1, 0.02, 4), Prices(1, 0.5, 1.1), Prices(1, 0.1, 5, 2), Prices(1, 0.25, 8, 1.25), Prices(1, 1, 1)]
)


def chat(turns: int, tokens: int) -> list[Message]:
    said = ((user(fill(f"q{turn}", tokens)), assistant(fill(f"a{turn}", tokens))) for turn in range(turns))
    return [user("Begin."), *(message for pair in said for message in pair)]


SESSIONS = st.one_of(
    st.builds(chat, st.just(100), st.integers(30, 90)),
    st.builds(lambda tokens: session(60, call_tokens=12, result_tokens=tokens), st.integers(60, 240)),
)


def by_high_water(high_water: float, prices: Prices) -> Policy:
    """The policy with this threshold; low water as the configuration derives it."""
    return replace(POLICY, high_water=high_water, low_water=min(0.2, high_water / 2), prices=prices)


def find_first(messages: Sequence[Message], policy: Policy) -> int:
    """The number of messages at which something is removed first; one more than there are if nothing is."""
    folded = Fold(Room.measure(messages, 0, LIMIT), policy)
    for message in messages:
        folded.add(message)
        if folded.window.cuts or folded.window.prune_stop:
            return len(folded)
    return len(messages) + 1


@given(messages=SESSIONS, values=st.tuples(VALUES, VALUES), prices=st.tuples(PRICES, PRICES))
def test_a_lower_threshold_never_acts_later(
    messages: Sequence[Message], values: tuple[float, float], prices: tuple[Prices, Prices]
) -> None:
    low, high = sorted(values)
    assert find_first(messages, by_high_water(low, prices[0])) <= find_first(messages, by_high_water(high, prices[1]))


@given(messages=SESSIONS, value=st.integers(20, 95).map(lambda percent: percent / 100), prices=PRICES)
def test_a_threshold_acts_within_a_step_of_its_size(messages: Sequence[Message], value: float, prices: Prices) -> None:
    """It never acts before; and where the newest steps fill the space that a cut must free, a step or two later."""
    policy = by_high_water(value, prices)
    first = find_first(messages, policy)
    room = Room.measure(messages, 0, LIMIT).tokens
    sizes = [sum(message.tokens for message in messages[1:stop]) for stop in range(len(messages) + 1)]
    step = max(sizes[stop] - sizes[stop - 2] for stop in range(2, len(sizes)))
    assert first <= len(messages)
    assert int(room * value) <= sizes[first] <= room * value + 2 * step


@pytest.mark.parametrize("value", [0.2, 0.5, 0.9])
def test_without_a_threshold_prices_decide(value: float) -> None:
    """Where reading from the cache is nearly free, nothing is cut before the room is full."""
    dear = replace(by_high_water(value, Prices(1, 0.001, 4)), cuts_at_threshold=False)
    messages = chat(60, 60)
    assert sum(message.tokens for message in messages) < Room.measure(messages, 0, LIMIT).tokens
    assert find_first(messages, dear) == len(messages) + 1
    assert find_first(messages, replace(dear, cuts_at_threshold=True)) < len(messages)


def count_forwarded(messages: Sequence[Message], window: Window) -> int:
    """The tokens that are forwarded of these messages, the head (the first of them) included."""
    floor = window.cut.at if window.cut else 1
    sizes = (
        min(message.tokens, PLACEHOLDER_TOKENS)
        if message.role is Role.TOOL and index < window.prune_stop
        else message.tokens
        for index, message in enumerate(messages)
        if index >= floor
    )
    return messages[0].tokens + (window.cut.tokens if window.cut else 0) + sum(sizes)


def price_cuts(before: Window, window: Window, sent_tokens: int, prices: Prices) -> float:
    """What the summary of a new cut costs, whose question reads what was sent before it."""
    cut = window.cut
    if cut is None or cut == before.cut or cut.kind is not CutKind.SUMMARISE:
        return 0.0
    return cut.reserved_tokens * NOTE_SHARE * prices.output + sent_tokens * prices.cached_input


@given(messages=SESSIONS, economy=st.sampled_from(Economy), prices=PRICES)
def test_a_session_that_fits_costs_little_more_wherever_it_ends(
    messages: Sequence[Message], economy: Economy, prices: Prices
) -> None:
    """At most the share of its economy, and what the newest two steps cost: they came after the cut was weighed.

    The ledger here is the upstream's: it caches the longest common beginning, and a cut leaves the head of it.
    """
    policy = replace(by_economy(replace(POLICY, prices=prices), economy, 32_000), cuts_at_threshold=False)
    room = Room.measure(messages, 0, LIMIT)
    folded, before, spent, plain = Fold(room, policy), Window(), 0.0, 0.0
    sent_tokens = plain_tokens = head_tokens = messages[0].tokens
    for stop in range(1, len(messages) + 1):
        folded.add(messages[stop - 1])
        whole_tokens = sum(message.tokens for message in messages[:stop])
        if stop < len(messages) and messages[stop].role is not Role.ASSISTANT:
            continue
        if whole_tokens - head_tokens > room.tokens:
            break
        window = folded.window
        is_same = (window.cut, window.prune_stop) == (before.cut, before.prune_stop)
        tokens = count_forwarded(messages[:stop], window)
        cached_tokens = sent_tokens if is_same else head_tokens
        spent += price_cuts(before, window, sent_tokens, prices)
        spent += cached_tokens * prices.cached_input + (tokens - cached_tokens) * prices.cache_write
        plain += plain_tokens * prices.cached_input + (whole_tokens - plain_tokens) * prices.cache_write
        steps_tokens = sum(message.tokens for message in messages[max(stop - 4, 1) : stop])
        assert spent <= (1 + policy.risk_share) * plain + steps_tokens * prices.cache_write
        before, sent_tokens, plain_tokens = window, tokens, whole_tokens
