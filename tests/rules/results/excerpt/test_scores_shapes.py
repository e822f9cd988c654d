"""Lines by their shape."""

from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.results.excerpt.scores import find_rare

LINES = st.lists(st.text(st.sampled_from("ab 1/.\"'=\ud800漢\t\r"), max_size=12), max_size=60)


def test_numbers_names_and_quotes_are_no_part_of_a_shape() -> None:
    """Words are."""
    lines = [f"read src/a{number}.c in {number} ms, as 'x{number}'" for number in range(9)]
    assert find_rare([*lines, "wrote src/b.c in 3 ms, as 'x'"]) == ([9], 0.8)


def test_what_hardly_varies_is_content() -> None:
    """Lines with a few codes are told apart by them."""
    lines = [f"done E{number % 2}" for number in range(400)]
    assert find_rare([*lines, "done E7"])[0] == [400]
    assert find_rare([*lines, "done E7", "done E7"])[0] == []


@given(LINES)
def test_a_rare_line_is_there_once(lines: list[str]) -> None:
    rare, told = find_rare(lines)
    assert all(lines.count(lines[index]) == 1 for index in rare)
    assert 0 <= told <= 1
