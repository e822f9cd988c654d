"""Policies under which short transcripts are cut."""

from dataclasses import replace

from hypothesis import strategies as st
from support.builders import FREE

from rules.economy import Budgets, Economy, find_budgets
from rules.policy import OnExceeded, Policy
from rules.treatment import Budget

POLICY = Policy(
    context_window=3200,
    completion_reserve=0,
    on_exceeded=OnExceeded.FORWARD,
    result_budget=Budget(300),
    tidying=None,
    dedupe=False,
    protect_turns=0,
    keep_user_tokens=200,
    summary_max_tokens=200,
    summary_min_steps=3,
    high_water=0.8,
    low_water=0.4,
    anchor_share=0.06,
    prices=FREE,
)
"""Results are truncated and cuts are made, both soon; nothing else acts, and no cut is put off for its price."""


def by_economy(policy: Policy, economy: Economy, window: int) -> Policy:
    """The policy with the waters, and the share of what is carried, that a window of this size has."""
    return _go_by(policy, find_budgets(economy, window))


def with_any_waters(policies: st.SearchStrategy[Policy]) -> st.SearchStrategy[Policy]:
    """The policies with the waters of every economy and window, and with any others."""
    fitted = st.builds(find_budgets, st.sampled_from(Economy), st.sampled_from([8_000, 32_000, 128_000, 1_000_000]))
    percents = st.tuples(st.integers(2, 60), st.integers(2, 40), st.integers(0, 40))
    drawn = percents.map(
        lambda each: Budgets((each[0] + each[1]) / 100, each[0] / 100, summary_tokens=0, anchor_share=each[2] / 100)
    )
    return st.builds(_go_by, policies, st.one_of(fitted, drawn))


def _go_by(policy: Policy, budgets: Budgets) -> Policy:
    """A window as small as those of tests has no room for the tokens of a fitted summary: those stay the policy's."""
    waters = replace(policy, high_water=budgets.high_water, low_water=budgets.low_water)
    return replace(waters, anchor_share=budgets.anchor_share)
