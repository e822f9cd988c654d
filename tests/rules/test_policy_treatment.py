"""The budget of an error."""

from trimtab.rules.policy import ERROR_FACTOR, Budget


def test_an_error_may_cost_more_in_both_measures() -> None:
    """If there is no limit in bytes, an error has none, either."""
    assert Budget(10, 70).for_error() == Budget(10 * ERROR_FACTOR, 70 * ERROR_FACTOR)
    assert Budget(10).for_error() == Budget(10 * ERROR_FACTOR, None)
