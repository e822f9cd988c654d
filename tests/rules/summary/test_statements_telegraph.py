"""Sentences without parts that carry no information."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.summary.statements import Census, read_words, shorten

PARTS = (
    "by the way", "the port is 5433", "as far as I can see", "but not on Mondays", "if the build 7 fails", "and so on",
    "never call Petra", "I think", "said the host db-4", "we will not use it", "which is fine", "顺便说一下",
    "端口是5433",
)  # fmt: skip
TALK = ("by the way", "as far as I can see", "and so on", "I think", "which is fine", "thanks a lot", "顺便说一下")


def shortened(text: str) -> str:
    """The shortened sentence; all of its short words count as common."""
    census = Census()
    census.add(read_words(text))
    for part in TALK:
        census.add(read_words(part), 5)
    return shorten(text, census.finish())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("By the way, the port is 5433, as far as I can see.", "port is 5433;"),
        ("I found that the port is 5433.", "port is 5433."),
        ("The port is 5433, but not on Mondays.", "port is 5433, but not on Mondays."),
        ("If the build 7 fails, call Petra.", "If build 7 fails, call Petra."),
        ("I am not sure that the port is 5433.", "I am not sure that port is 5433."),
        ("顺便说一下，端口是5433。", "端口是5433。"),
    ],
)
def test_the_part_with_the_fact_stays(said: str, told: str) -> None:
    """Together with what limits or denies it."""
    assert shortened(said) == told


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=8))
def test_no_word_is_added_or_moved_and_no_negation_is_dropped(parts: list[str]) -> None:
    """All words of the result are words of the sentence, in order."""
    said = ", ".join(parts) + "."
    told = shortened(said)
    rest = iter(said.rstrip("."))
    assert all(char in rest for char in told.rstrip(".;"))
    assert told
    for denial in ("not", "never"):
        assert told.split().count(denial) == said.split().count(denial)


@given(st.text(max_size=200))
def test_any_text_can_be_shortened(text: str) -> None:
    """It grows by at most one sign at the end, and it never becomes empty."""
    told = shortened(text)
    assert len(told) <= len(text) + 1
    assert bool(told)
