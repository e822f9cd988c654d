"""Documents and pages."""

import pytest

from trimtab.rules.results.excerpt.scores import is_page, is_prose, score_prose

TEXT = [
    "# Title", "", "First line of a paragraph.", "Second one.", "Third one.", "", "Heading", "-------", "",
    "Another paragraph.",
]  # fmt: skip


def test_headings_come_before_openings_and_those_before_the_rest() -> None:
    """Headings have a sign before them, or a line under them."""
    scores = score_prose(TEXT)
    assert scores[0] == scores[6] > scores[2] == scores[9] > scores[3] >= scores[4] > 0
    assert 1 not in scores


def test_tags_alone_say_little() -> None:
    """The text between tags matters more."""
    scores = score_prose(["<div><p>", "Some words", "<script src='a'></script>", "<h1>Title</h1>"])
    assert scores[3] > scores[1] > scores[0] == scores[2]


@pytest.mark.parametrize("line", ["<!DOCTYPE html>", "  <HTML>", "<?xml version='1.0'?>", "<head>"])
def test_a_page_begins_as_one(line: str) -> None:
    """A page is recognised by one of its first lines."""
    assert is_page(["", line])
    assert not is_page([*["words"] * 9, line])


def test_prose_has_words() -> None:
    """Prose has lines of many words, which begin differently."""
    words = "this is a line of quite a few words"
    assert is_prose([f"{word} {words}" for word in "abcdefgh"])
    assert not is_prose([f"INFO {words} {number}" for number in range(9)])
    assert not is_prose(["x = 1", "y = 2", "z = 3"])


@pytest.mark.parametrize("unit", ["<", "<a ", "<a>", "</", "A ", "=", "# ", " ", "\0", "\ud800"])
def test_hostile_lines_are_read(unit: str) -> None:
    """Without an error."""
    scores = score_prose([unit * 2000, unit * 399 + "x"])
    assert set(scores) <= {0, 1}
