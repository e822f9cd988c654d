"""The caches of the rules, and how much they may process."""

import pytest
from support.builders import count

from trimtab.rules.results.work import Allowance, LargeWorkError, Shortened, Work


@pytest.mark.parametrize(
    ("max_chars", "spent", "is_enough"), [(10, (4, 6), True), (10, (4, 7), False), (0, (1,), False)]
)
def test_an_allowance_bounds_what_is_spent_in_all(max_chars: int, spent: tuple[int, ...], is_enough: bool) -> None:  # noqa: FBT001
    """All of the allowance can be spent, and not one character more."""
    allowance = Allowance(max_chars)
    for chars in spent[:-1]:
        allowance.spend(chars)
    if is_enough:
        allowance.spend(spent[-1])
    else:
        with pytest.raises(LargeWorkError):
            allowance.spend(spent[-1])


def test_all_that_a_caller_must_give_is_the_count() -> None:
    """Then nothing is bounded, and two works share no caches."""
    work, key = Work(count), (0, "rule", "", ("text",), False, "", "")
    work.results[key] = Shortened((), 0)
    assert (work.results.get(key), Work(count).results.get(key)) == (Shortened((), 0), None)
    work.allowance.spend(10**12)
