"""Policies under which the rules act on short sessions."""

from dataclasses import replace

from fuzzing.choices import Choices

from trimtab.rules.policy import Budget, OnExceeded, OverflowStrategy, Policy, Prices, SummaryRole


def choose_policy(choices: Choices) -> Policy:
    """A policy with any strategy and a small window, so that its rules act."""
    policy = Policy(
        completion_reserve=choices.pick((0, 200)),
        result_budget=Budget(choices.pick((300, 64, 1)), choices.pick((None, 600))),
        protect_turns=choices.below(3),
        keep_user_tokens=choices.pick((200, 0)),
        summary_max_tokens=choices.pick((200, 64)),
        summary_min_steps=choices.pick((1, 3, 6)),
        summary_role=choices.pick(tuple(SummaryRole)),
        prices=choices.pick((Prices(0.0, 0.0, 0.0, 0.0), Prices())),
        token_ratio=choices.pick((1.0, 1.0, 0.5, 1.7)),
    )
    return replace(
        policy,
        context_window=choices.pick((1600, 1024, 2400, 4000, 128_000)),
        low_water=choices.pick((0.4, 0.2)),
        overflow_strategy=choices.pick(tuple(OverflowStrategy)),
        on_exceeded=choices.pick(tuple(OnExceeded)),
    )
