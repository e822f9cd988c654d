"""Lines by their shape."""

from hypothesis import given
from hypothesis import strategies as st

from rules.results.excerpt.scores.shapes import read_shapes

LINES = st.lists(st.text(st.sampled_from("ab 1/.\"'=\ud800漢\t\r"), max_size=12), max_size=60)


def test_numbers_names_and_quotes_are_no_part_of_a_shape() -> None:
    """Words are."""
    lines = [f"read src/a{number}.c in {number} ms, as 'x{number}'" for number in range(9)] + [
        "wrote src/b.c in 3 ms, as 'x'"
    ]
    shapes = read_shapes(lines)
    assert len(set(shapes.of)) == 2
    assert shapes.rarity(9) == 1.0
    assert shapes.rarity(0) < 0.2


def test_what_hardly_varies_is_content() -> None:
    """Lines with a few codes are told apart by them."""
    lines = [f"done E{number % 2}" for number in range(400)] + ["done E7"] * 2
    shapes = read_shapes(lines)
    assert len(set(shapes.of)) == 3
    assert shapes.rarity(401) > shapes.rarity(0)


@given(LINES)
def test_each_line_has_a_shape(lines: list[str]) -> None:
    """Equal lines have the same one; rarity and variety lie between nothing and one."""
    shapes = read_shapes(lines)
    assert len(shapes.of) == len(lines)
    assert sum(shapes.counts.values()) == len(lines)
    assert all(shapes.by_line[line] == shape for line, shape in zip(lines, shapes.of, strict=True))
    assert all(0 <= shapes.rarity(index) <= 1 for index in range(len(lines)))
    assert 0 <= shapes.variety <= 1
