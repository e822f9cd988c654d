"""A text as units, each of which is kept or left out."""

from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.results.excerpt.select import split_units

TEXTS = st.builds(
    lambda pieces, times: "".join(pieces) * times,
    st.lists(
        st.sampled_from(["a", "\n", "\r\n", " ", ", ", "word " * 30, "e\u0301", "\ud800", "漢" * 50]), max_size=20
    ),
    st.sampled_from([1, 2, 300]),
)


@given(TEXTS, st.integers(200, 500))
def test_the_units_joined_are_the_text(text: str, max_chars: int) -> None:
    """Each unit begins at its offset, has the number of the line in which it begins, and is not too long."""
    units = split_units(text, max_chars)
    assert "".join(units.texts) == text
    assert units.offsets[0] == 0
    assert units.offsets[-1] == len(text)
    for index, unit in enumerate(units.texts):
        start = units.offsets[index]
        assert text[start : start + len(unit)] == unit
        assert units.lines[index] == text.count("\n", 0, start) + 1
        assert units.last_line(index) == text.count("\n", 0, start + len(unit) - 1) + 1
        begins, ends = start == 0 or text[start - 1] == "\n", unit.endswith("\n") or start + len(unit) == len(text)
        assert units.is_part(index, index + 1) == (not (begins and ends) and unit.strip("\n") != "")
        assert len(unit) <= max_chars or not unit.strip("\n")


def test_a_long_line_is_cut_behind_a_blank() -> None:
    """If a blank is near, and no combining mark follows it."""
    assert all(piece.endswith(" ") for piece in split_units("word " * 300, 100).texts)
    pieces = split_units("word \u0301" * 300, 100).texts
    assert not any(piece.startswith("\u0301") for piece in pieces)
