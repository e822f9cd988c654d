"""Which units are kept within a budget."""

from hypothesis import given
from hypothesis import strategies as st
from support.builders import count

from trimtab.rules.results.select import GAP_TOKENS, Guide, Selection, Shares, split_units

NO_ENDS = Shares(0.0, 0.0)
LINES = [f"line {number:03} of a text that is far too long" for number in range(400)]
TEXT = "".join(f"{line}\n" for line in LINES)


def select(scores: dict[int, float], limit: int, shares: Shares = NO_ENDS) -> str:
    return Selection(split_units(TEXT, 400), count(TEXT), Guide(scores)).write(limit, shares, count) or ""


@given(
    st.dictionaries(st.integers(0, 399), st.floats(0, 9), max_size=60),
    st.integers(0, 900),
    st.sampled_from([NO_ENDS, Shares(0.2, 0.1), Shares(0.06, 0.14)]),
)
def test_a_selection_keeps_its_limit(scores: dict[int, float], limit: int, shares: Shares) -> None:
    """Whatever the scores are. Kept units stay in their order."""
    short = select(scores, limit, shares)
    assert count(short) <= limit
    kept = [line for line in short.splitlines() if not line.startswith("[trimtab: ")]
    assert kept == sorted(kept)
    assert set(kept) <= set(LINES)


def test_the_ends_are_kept_by_their_shares() -> None:
    """A short gap is filled, as its marker would cost more. Ends that meet leave nothing out."""
    kept = select({10: 0.1, 200: 9.0, 300: 5.0}, 72).splitlines()
    assert [LINES[at] in kept for at in (10, 200, 300)] == [False, True, True]
    kept = select({}, 400, Shares(0.25, 0.5)).splitlines()
    marker = next(index for index, line in enumerate(kept) if line.startswith("[trimtab: "))
    assert kept[:marker] == LINES[:marker]
    assert kept[marker + 1 :] == LINES[-(len(kept) - marker - 1) :]
    assert marker < len(kept) - marker - 1
    assert count(LINES[0]) < GAP_TOKENS
    kept = select({200: 9.0, 202: 9.0}, 120).splitlines()
    at = kept.index(LINES[200])
    assert kept[at : at + 3] == LINES[200:203]
    assert Selection(split_units(TEXT, 400), count(TEXT), Guide({})).write(5, NO_ENDS, count) is None
    assert select({}, 2 * count(TEXT), Shares(1.0, 1.0)) == TEXT


# A text as units, each of which is kept or left out.

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
    assert len(units.texts) == len(units.lines) - 1 == len(units.offsets) - 1
    for index, unit in enumerate(units.texts):
        start = units.offsets[index]
        assert text[start : start + len(unit)] == unit
        assert units.lines[index] == text.count("\n", 0, start) + 1
        assert units.last_line(index) == text.count("\n", 0, start + len(unit) - 1) + 1
        begins, ends = start == 0 or text[start - 1] == "\n", unit.endswith("\n") or start + len(unit) == len(text)
        assert units.is_part(index, index + 1) == (not (begins and ends) and unit.strip("\n") != "")
        assert len(unit) <= max_chars or not unit.strip("\n")
