"""The quotation around carried text."""

from hypothesis import given
from hypothesis import strategies as st
from support.builders import count

from trimtab.rules.summary.quoting import ROUNDS, break_markers, fit, frame
from trimtab.rules.text.markers import QUOTE_END, QUOTE_START

TEXTS = st.lists(st.sampled_from([QUOTE_END, QUOTE_START, "[trimtab: x]", "\n", "a ", "\u200b"])).map("".join)


@given(text=TEXTS)
def test_only_its_end_ends_the_quotation(text: str) -> None:
    """For any quoted text."""
    quoted = frame(break_markers(text))
    assert quoted.startswith(f"{QUOTE_START}\n")
    assert quoted.endswith(f"\n{QUOTE_END}\n")
    assert quoted.count("[trimtab: ") == 2


@given(text=TEXTS, max_tokens=st.integers(-1, 60))
def test_a_text_that_does_not_fit_is_left_out(text: str, max_tokens: int) -> None:
    """Less room is tried first."""
    fitted = fit(lambda room: frame(break_markers(text[:room])), max_tokens=max_tokens, count=count)
    assert not fitted or count(fitted) <= max_tokens


def test_a_text_that_never_fits_is_tried_a_few_times() -> None:
    """Even if it ignores the room that it is given."""
    rooms: list[int] = []
    assert fit(lambda room: rooms.append(room) or "x" * 404, max_tokens=100, count=count) == ""
    assert rooms == list(range(100, 100 - ROUNDS, -1))


@given(max_tokens=st.integers(-5, 5))
def test_without_room_nothing_is_written(max_tokens: int) -> None:
    rooms: list[int] = []
    fit(lambda room: rooms.append(room) or "xxxxxxxx", max_tokens=max_tokens, count=len)
    assert all(room > 0 for room in rooms)
