"""A policy under which short transcripts are cut."""

from support.builders import FREE

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
