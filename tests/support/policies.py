"""Policies that cut short transcripts."""

from dataclasses import replace

from hypothesis import strategies as st
from support.builders import FREE

from trimtab.rules.economy import Budgets, Economy, find_budgets
from trimtab.rules.policy import (
    Budget,
    OnExceeded,
    OverflowStrategy,
    Policy,
    PreserveSystem,
    Prices,
    SectionShares,
    SummaryRole,
    Tidying,
)

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
"""Truncates and cuts soon. No other rule acts, and no cut is postponed for its cost."""


def by_economy(policy: Policy, economy: Economy, window: int) -> Policy:
    """The policy with the waters and the anchor share that the economy sets for a window of this size."""
    return _go_by(policy, find_budgets(economy, window))


def with_any_waters(policies: st.SearchStrategy[Policy]) -> st.SearchStrategy[Policy]:
    """The policies with waters of every economy and window size, or with arbitrary ones, which may be thresholds."""
    fitted = st.builds(find_budgets, st.sampled_from(Economy), st.sampled_from([8_000, 32_000, 128_000, 1_000_000]))
    percents = st.tuples(st.integers(2, 60), st.integers(2, 40), st.integers(0, 40))
    drawn = percents.map(
        lambda each: Budgets((each[0] + each[1]) / 100, each[0] / 100, 0, each[2] / 100, risk_share=each[1] / 100)
    )
    return st.builds(_go_by, policies, st.one_of(fitted, drawn), st.booleans())


def any_policies() -> st.SearchStrategy[Policy]:
    """Policies for a small window with every rule that can be switched on, and with any waters."""
    drawn = st.builds(
        replace,
        st.just(POLICY),
        context_window=st.sampled_from([600, 1600, 2400, 4000]),
        overflow_strategy=st.sampled_from(OverflowStrategy),
        on_exceeded=st.sampled_from(OnExceeded),
        prices=st.sampled_from([FREE, Prices()]),
        protect_turns=st.integers(0, 2),
        keep_user_tokens=st.sampled_from([0, 200]),
        keep_images=st.sampled_from([None, 0, 2]),
        tidying=st.sampled_from([None, Tidying()]),
        dedupe=st.booleans(),
        result_budget=st.sampled_from([Budget(60), Budget(300)]),
        summary_min_steps=st.sampled_from([1, 6]),
        summary_role=st.sampled_from(SummaryRole),
        preserve_system=st.sampled_from(PreserveSystem),
        pin_instruction=st.booleans(),
        max_message_tokens=st.sampled_from([None, 90]),
        truncate_users=st.booleans(),
        memory_tags=st.just(("relevant_context",)),
        compact_at_tokens=st.sampled_from([None, 700]),
        max_turns=st.sampled_from([None, 2]),
        sections=st.sampled_from([None, SectionShares()]),
        truncate_system=st.booleans(),
    )
    return with_any_waters(drawn)


def _go_by(policy: Policy, budgets: Budgets, cuts_at_threshold: bool = False) -> Policy:  # noqa: FBT001, FBT002
    """Keeps the policy's own summary budget: the windows of tests are too small for a fitted one."""
    waters = replace(policy, high_water=budgets.high_water, low_water=budgets.low_water)
    waters = replace(waters, anchor_share=budgets.anchor_share, risk_share=budgets.risk_share)
    return replace(waters, cuts_at_threshold=cuts_at_threshold)
