"""The limits that a policy sets, and which treatment a tool's results get."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.policy import (
    MAX_NAME_CHARS,
    Budget,
    Policy,
    Prices,
    SectionShares,
    ToolRule,
    Treatment,
    name_policy,
)


@pytest.mark.parametrize(
    ("window", "reserve", "wanted", "limit"),
    [
        (100_000, 8192, None, 91_808),
        (16_000, 8192, None, 12_000),
        (100_000, 8192, 100, 91_808),
        (100_000, 8192, 8193, 83_616),
        (100_000, 8192, 16_384, 83_616),
        (100_000, 8192, 90_000, 50_000),
        (100_000, 0, None, 100_000),
        (100_000, 0, 0, 100_000),
        (100_000, 0, -5, 100_000),
        (100_000, 0, 1, 99_999),
    ],
)
def test_the_limit_is_the_window_less_the_reserve(window: int, reserve: int, wanted: int | None, limit: int) -> None:
    """The reserve is at most a quarter of the window. The request's own maximum may raise it to a half."""
    assert Policy(context_window=window, completion_reserve=reserve).limit_tokens(wanted) == limit


@given(exponent=st.integers(1, 20), first=st.data())
def test_maxima_within_a_power_of_two_set_one_limit(exponent: int, first: st.DataObject) -> None:
    """Two maxima between the same powers of two give the same limit. So a changing maximum moves no cut."""
    span = st.integers(2 ** (exponent - 1) + 1, 2**exponent)
    policy = Policy()
    assert policy.limit_tokens(first.draw(span)) == policy.limit_tokens(first.draw(span))


@given(window=st.integers(1, 2_000_000), reserve=st.integers(0, 100_000), wanted=st.none() | st.integers(0, 2_000_000))
def test_the_limit_leaves_half_of_the_window(window: int, reserve: int, wanted: int | None) -> None:
    """For any maximum, prompts may have at least half of the window, and at most all of it."""
    limit = Policy(context_window=window, completion_reserve=reserve).limit_tokens(wanted)
    assert window / 2 <= limit <= window


@pytest.mark.parametrize("reserve", [0, 1000, 8192])
@pytest.mark.parametrize("ratio", [1.0, 1.3])
def test_what_may_go_out_beyond_the_limit_is_half_of_the_reserve(reserve: int, ratio: float) -> None:
    """The request's own maximum must fit the other half. So a smaller maximum changes nothing."""
    policy = Policy(context_window=32_000, completion_reserve=reserve, token_ratio=ratio)
    half = min(reserve, policy.context_window // 4) // 2
    assert {policy.spare_tokens(wanted) for wanted in (None, 1, half // 2, half)} == {int(half / ratio)}
    assert policy.spare_tokens(half + 1) == policy.spare_tokens(40_000) == 0
    for wanted in (None, half):
        assert policy.limit_tokens(wanted) + policy.spare_tokens(wanted) <= policy.fitting_tokens(wanted)


def test_policies_are_named_as_they_are_equal() -> None:
    """Any other number gives another name, also a number in a tool's rule."""
    policies = [
        Policy(),
        Policy(high_water=0.7),
        Policy(prices=Prices(output=3.0)),
        Policy(tools=(ToolRule("read", Treatment(Budget(9))),)),
        Policy(tools=(ToolRule("read", Treatment(Budget(9), exempt_arguments=("*",))),)),
    ]
    names = [name_policy(policy) for policy in policies]
    assert len(set(names)) == len(policies)
    assert names == [name_policy(replace(policy)) for policy in policies]


RULES = tuple(
    ToolRule(glob, Treatment(Budget(number))) for number, glob in enumerate(("read_*", "read*", "[Ww]rite"), 1)
)
TREATED = Policy(result_budget=Budget(0), tools=RULES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("read_file", 1), ("reader", 2), ("Read_file", 0), ("write", 3), ("Write", 3), ("WRITE", 0), ("", 0), ("a", 0)],
)
def test_the_first_rule_that_matches_decides(name: str, expected: int) -> None:
    assert TREATED.find_treatment(name).budget.max_tokens == expected


def test_a_name_that_no_tool_can_have_matches_nothing() -> None:
    assert TREATED.find_treatment("read" + "x" * (MAX_NAME_CHARS - 4)) is RULES[1].treatment
    assert TREATED.find_treatment("read" + "x" * (MAX_NAME_CHARS - 3)).budget == Budget(0)


SHARES = SectionShares(0.1, 0.1, 0.1, 0.1, 0.1)


@pytest.mark.parametrize(
    ("policy", "soft"),
    [
        (Policy(), None),
        (Policy(compact_at_tokens=4000), 4000),
        (Policy(compact_at_tokens=4000, token_ratio=2.0), 2000),
        (Policy(compact_at_tokens=10_000), None),
        (Policy(sections=SHARES), 5000),
        (Policy(sections=SHARES, compact_at_tokens=4000), 4000),
        (Policy(sections=SHARES, compact_at_tokens=6000), 5000),
    ],
)
def test_the_soft_limit_is_the_smaller_of_the_configured_ones(policy: Policy, soft: int | None) -> None:
    assert policy.soft_limit_tokens(10_000) == soft


def test_what_the_upstream_adds_is_taken_off_once() -> None:
    """Else the completion that the request asks for is; if it asks for none, half of the reserve."""
    plain, adding = (
        Policy(context_window=16_000, completion_reserve=4000, added_tokens=added) for added in (None, 500)
    )
    assert (plain.hard_limit_tokens(2000), plain.fitting_tokens(2000)) == (16_000, 14_000)
    assert (plain.hard_limit_tokens(), plain.fitting_tokens()) == (16_000, 14_000)
    assert (adding.hard_limit_tokens(2000), adding.fitting_tokens(2000)) == (14_000, 14_000)
    assert (adding.hard_limit_tokens(), adding.fitting_tokens()) == (15_500, 15_500)


def test_the_limit_is_told_with_its_reason() -> None:
    """At most half of the window is kept free for a completion, however long a client asks for."""
    policy = Policy(context_window=32_000, completion_reserve=8192)
    reserve = "limit: 24,000 tokens; 8,000 of the window's 32,000 tokens stay free for the completion ("
    assert policy.describe_limit() == f"{reserve}completion_reserve, at most a quarter of the window)"
    assert policy.describe_limit(100) == policy.describe_limit()
    half = "limit: 16,000 tokens; 16,000 of the window's 32,000 tokens stay free for the completion ("
    why = "the request's max_tokens is 32,000, rounded up, at most half of the window)"
    assert policy.describe_limit(32_000) == half + why


# The budget of an error.
