"""Very long texts are read window by window."""

from itertools import accumulate, chain, pairwise
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import given
from support.builders import count
from support.markers import check_markers
from support.results import shorten_text

from trimtab.rules.results.excerpt import kinds
from trimtab.rules.results.excerpt.kinds import (
    LARGE_CHARS,
    LARGE_LINES,
    LOG,
    SOURCE,
    Kind,
    Scan,
    _Best,
    _Found,
    is_large,
    split_large,
    tell_large_kind,
)

SCAN = Scan(line_chars=40, limit=3, chars=30, window_chars=64, most_units=4)
TEXTS = st.lists(
    st.sampled_from(
        ["a", "error: b", "\n", "\n\n\n", "warning", " ", "x" * 50, "漢字", "👩‍👩‍👧", "e\u0301" * 30, "\r\n"]
    ),
    max_size=60,
).map("".join)


def test_only_a_very_long_text_or_one_of_very_many_lines_is_large() -> None:
    """The bounds are inclusive."""
    assert not is_large("a" * LARGE_CHARS)
    assert is_large("a" * (LARGE_CHARS + 1))
    assert not is_large("a\n" * LARGE_LINES)
    assert is_large("a\n" * (LARGE_LINES + 1))


@given(TEXTS)
def test_the_units_joined_are_the_text(text: str) -> None:
    """For any text, with its gaps."""
    units = split_large(text, LOG, SCAN)
    assert "".join(units.cut(index, index + 1) for index in range(len(units.texts))) == text
    assert len(units.texts) == len(units.lines) - 1 == len(units.offsets) - 1


@given(TEXTS)
def test_the_numbers_of_lines_are_true(text: str) -> None:
    """Each unit has the numbers of its first and its last line; gaps do, too."""
    units = split_large(text, LOG, SCAN)
    for index in range(len(units.texts)):
        start, stop = units.offsets[index], units.offsets[index + 1]
        assert units.lines[index] == 1 + text.count("\n", 0, start)
        assert units.last_line(index) == 1 + text.count("\n", 0, stop - 1)
    assert units.lines[-1] == text.count("\n") + (not text.endswith("\n")) + 1


@given(TEXTS)
def test_the_same_text_has_the_same_units(text: str) -> None:
    """The outcome for a result must be the same each time."""
    assert split_large(text, LOG, SCAN) == split_large(text, LOG, SCAN)


@given(st.lists(st.sampled_from(["a" * 9 + "\n", "b" * 14 + "\n", "c\n"]), max_size=40))
def test_the_units_at_both_ends_are_kept(lines: list[str]) -> None:
    """As many as the limit, of those that begin or end within its characters; what lies between is one gap."""
    text = "".join(lines)
    places = list(pairwise(accumulate(map(len, lines), initial=0)))
    head = [place for place in places if place[0] < SCAN.chars][: SCAN.limit]
    tail = [place for place in places if place[1] > len(text) - SCAN.chars and place not in head][-SCAN.limit :]
    offsets = split_large(text, Kind(lambda _: {}), SCAN).offsets
    assert list(offsets) == sorted({0, len(text), *chain(*head, *tail)})


def test_what_matters_most_is_kept_of_the_whole_text() -> None:
    """Errors in any window are units of their own; the lines at both ends are, too."""
    lines = [f"line {number} is fine\n" for number in range(50_000)]
    for place in (4, 25_000, 49_990):
        lines[place] = f"error: {place} is not\n"
    units = split_large("".join(lines), LOG, Scan(400, 100, 1000))
    kept = set(units.texts)
    assert {lines[place] for place in (0, 1, 4, 25_000, 49_990, 49_999)} <= kept
    assert len(units.texts) < 1000


def test_a_line_that_was_asked_for_is_kept() -> None:
    """The terms of the call ask for it, unless they are in very many lines."""
    lines = [f"ordinary {number % 7}\n" for number in range(30_000)]
    lines[17_000] = "this is wanted_name here\n"
    units = split_large("".join(lines), LOG, Scan(400, 100, 1000, ("wanted_name", "ordinary")))
    assert lines[17_000] in units.texts
    assert len(units.texts) < 1000


@pytest.mark.parametrize("line", ["error: it is bad {}\n", "{}\n", "=== {} ===\n", "\x1b[0m{}\n", "漢{}\n", "{},1,2\n"])
def test_no_more_units_are_kept_than_wanted(line: str) -> None:
    """However many lines matter."""
    text = "".join(line.format(number) for number in range(30_000))
    scan = Scan(400, 100, 1000, most_units=500)
    assert len(split_large(text, LOG, scan).texts) <= 2 * 500 + 4 * scan.limit


def test_units_that_are_not_among_the_best_are_not_held() -> None:
    """A stream without end takes no memory without end, and what cannot be among the best is not even looked at."""
    best = _Best(4, 10)
    best.take(_Found(-float(score), score, score + 3, score) for score in range(1, 1000))
    assert len(best._kept) < 2 * 4
    assert best.floor >= 900
    assert [unit.start for unit in best.found()] == [999, 998, 997]


def test_the_kind_is_told_from_all_parts_of_the_text() -> None:
    """A short text is treated the same way."""
    code = "".join(f"def function_{number}(value):\n    return value + {number}\n\n" for number in range(10_000))
    assert tell_large_kind(code, 400) is SOURCE
    assert tell_large_kind("x y\n" * 30_000, 400) is LOG
    assert tell_large_kind("x" * 3_000_000, 400) is LOG


LONG = "x" * 90 + "\n"


@given(st.lists(st.sampled_from(["a\n", "error: b\n", "\n", LONG, "漢字\n", "warning: c", "\n\n"]), max_size=200))
def test_the_markers_of_a_large_text_are_true(pieces: list[str]) -> None:
    """They name the missing lines and tokens, also across windows. The excerpt is never longer than the text."""
    # A long line is its number, repeated: the place of a part of it can then be found.
    numbered = (f"{number:03d}" * 30 + "\n" if piece == LONG else piece for number, piece in enumerate(pieces * 2))
    text = "".join(numbered)
    with mock.patch.multiple(kinds, LARGE_CHARS=100, LARGE_LINES=20):
        short = shorten_text(text, 80, count)
        assert short == shorten_text(text, 80, count)
    assert count(short) <= max(80, count(text))
    check_markers(short, text, count)
