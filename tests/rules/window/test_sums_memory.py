"""Sums of retrieved memory: each is what adding up from the start would give."""

from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.window.sums import Savings


@given(tokens=st.lists(st.integers(0, 50), max_size=12), data=st.data())
def test_sums_equal_those_computed_one_by_one(tokens: list[int], data: st.DataObject) -> None:
    """For any span, and for any amount to save: no more messages than must lose their memory."""
    sums = Savings()
    for index, each in enumerate(tokens):
        sums.add(index, each)
    start = data.draw(st.integers(0, len(tokens)))
    stop = data.draw(st.integers(start, len(tokens)))
    assert sums.saved(start, stop) == sum(tokens[start:stop])
    assert sums.behind(start) == sum(tokens[start:])
    wanted = data.draw(st.integers(1, 300))
    found = sums.find_stop(start, wanted)
    if wanted <= sum(tokens[start:]):
        assert sum(tokens[start:found]) >= wanted > sum(tokens[start : found - 1])
    else:
        assert sum(tokens[found:]) == 0


def test_a_transcript_without_memory_has_nothing_to_drop() -> None:
    """It takes no space, and no message must change."""
    sums = Savings()
    sums.add(0, 0)
    assert (len(sums.places), sums.find_stop(0, 10), sums.saved(0, 1), sums.behind(0)) == (0, 0, 0, 0)
