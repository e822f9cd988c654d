"""Which treatment a tool's results get, and what an error may cost."""

import pytest

from rules.treatment import ERROR_FACTOR, MAX_NAME_CHARS, Budget, ToolRule, Treatment, find_treatment

OTHERWISE = Treatment(Budget(0))
RULES = [ToolRule(glob, Treatment(Budget(number))) for number, glob in enumerate(("read_*", "read*", "[Ww]rite"), 1)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("read_file", 1), ("reader", 2), ("Read_file", 0), ("write", 3), ("Write", 3), ("WRITE", 0), ("", 0), ("a", 0)],
)
def test_the_first_rule_that_matches_decides(name: str, expected: int) -> None:
    """In the order of the rules; case counts."""
    assert find_treatment(name, RULES, OTHERWISE).budget.max_tokens == expected


def test_a_name_that_no_tool_can_have_matches_nothing() -> None:
    """The longest name that is looked at still does."""
    assert find_treatment("read" + "x" * (MAX_NAME_CHARS - 4), RULES, OTHERWISE) is RULES[1].treatment
    assert find_treatment("read" + "x" * (MAX_NAME_CHARS - 3), RULES, OTHERWISE) is OTHERWISE


def test_an_error_may_cost_more_in_both_measures() -> None:
    """Without a limit in bytes there is none for an error either."""
    assert Budget(10, 70).for_error() == Budget(10 * ERROR_FACTOR, 70 * ERROR_FACTOR)
    assert Budget(10).for_error() == Budget(10 * ERROR_FACTOR, None)
