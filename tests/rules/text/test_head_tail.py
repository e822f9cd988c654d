"""A long text keeps head and tail."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import count, count_words

from trimtab.rules.text.head_tail import (
    LIKELY_CHARS_PER_UNIT,
    PIECE_CHARS,
    SEARCH_ROUNDS,
    _take,
    cut_pieces,
    holds,
    measure_bytes,
    truncate_text,
)

LOG = "\n".join(f"line {number} of the build log" for number in range(400))
MEASURES = pytest.mark.parametrize("measure", [count, count_words, measure_bytes])
LINES = st.text(st.sampled_from("ab \né\U0001f600\ud800"), max_size=40)
TEXTS = st.builds(lambda line, times, tail: line * times + tail, LINES, st.integers(0, 60), LINES)
Measure = Callable[[str], int]


@MEASURES
@given(text=TEXTS, limit=st.integers(0, 400))
def test_a_text_never_exceeds_its_limit(measure: Measure, text: str, limit: int) -> None:
    """The result measures at most the limit. A text that fits is unchanged; any other becomes shorter."""
    short = truncate_text(text, limit, measure)
    assert measure(short) <= limit
    if measure(text) <= limit:
        assert short is text
    else:
        assert measure(short) < measure(text)


@MEASURES
def test_head_and_tail_stay(measure: Measure) -> None:
    """The first and the last lines stay whole around one marker; most of the limit is used."""
    limit = measure(LOG) // 4
    head, marker, tail = truncate_text(LOG, limit, measure).partition("\n[trimtab: ")
    _, _, rest = tail.partition("]\n")
    assert marker
    assert LOG.startswith(head + "\n")
    assert LOG.endswith("\n" + rest)
    assert measure(head) < measure(rest)
    assert measure(head) + measure(rest) > limit * 0.8


def test_the_marker_says_how_much_is_missing() -> None:
    """The size in the marker is that of the omitted text, in the limit's unit."""
    short = truncate_text(LOG, 400, count_words, "words")
    head, _, rest = short.partition("\n[trimtab: ")
    marker, _, tail = rest.removeprefix("omitted ").partition("]\n")
    missing = count_words(LOG) - count_words(head) - count_words(tail)
    size, unit = marker.partition("(")[2].rstrip(")").split()
    assert unit == "words"
    assert abs(int(size) - missing) <= missing * 0.05


def test_without_room_for_a_marker_some_of_the_head_stays() -> None:
    """If the limit is smaller than the marker, only the head is left."""
    short = truncate_text(LOG, 5, count)
    assert short
    assert LOG.startswith(short)
    assert truncate_text(LOG, 0, count) == ""


SCRAPS = ["字", "a", "word ", "\n", "\r\n", "\u0300", "🙂", "0123456789", "\t"]


@given(st.lists(st.sampled_from(SCRAPS), max_size=20).map("".join), st.sampled_from([1, 3, 40]), st.integers(1, 300))
def test_a_text_is_cut_to_its_budget_whatever_it_holds(scrap: str, times: int, limit: int) -> None:
    """Never over the limit, never emptied, and the marker says what is missing, also of how many lines."""
    text = scrap * times
    short = truncate_text(text, limit, measure_bytes, "bytes")
    assert measure_bytes(short) <= limit or short == text
    assert bool(short) == bool(text) or measure_bytes(text[0]) > limit
    found = re.search(r"\n\[trimtab: omitted (\d+) lines \((\d+) bytes\)\]\n", short)
    if found:
        assert int(found[2]) == measure_bytes(text) - measure_bytes(short.replace(found[0], ""))
        start, stop = found.start(), found.end() + len(text) - len(short)
        breaks = [at for at, char in enumerate(text) if char == "\n"]
        lines = zip([0, *(at + 1 for at in breaks)], [*breaks, len(text)], strict=True)
        assert int(found[1]) == sum(begin < stop and end > start for begin, end in lines)


def test_a_join_that_costs_a_token_more_is_cut_away_too() -> None:
    """Head and marker may measure more together than each alone."""

    def measure(text: str) -> int:
        return len(text) + text.count("x\n[")

    for limit in range(150, 200):
        short = truncate_text("x" * 2000, limit, measure)
        assert "x\n[trimtab: " in short
        assert measure(short) <= limit


def test_measure_bytes_counts_utf8() -> None:
    """Bytes, not characters; also of lone surrogates."""
    assert [measure_bytes(text) for text in ("a", "é", "\U0001f600", "\ud800")] == [1, 2, 4, 3]
    assert measure_bytes("aé\ud83d\ude00" * 300_000) == 9 * 300_000


CHARACTERS = [
    "か\u3099",
    "\U0001f468\u200d\U0001f469",
    "\U0001f1e9\U0001f1ea",
]


@pytest.mark.parametrize("character", CHARACTERS)
@given(st.integers(0, 5), st.integers(60, 400))
def test_head_and_tail_are_whole_characters(character: str, shift: int, limit: int) -> None:
    """They do not begin or end within a grapheme cluster."""
    text = "x" * shift + character * 2000
    head, marker, tail = truncate_text(text, limit, count).partition("\n[trimtab: ")
    assert marker
    assert head.lstrip("x").replace(character, "") == ""
    assert tail.partition("]\n")[2].replace(character, "") == ""


@pytest.mark.parametrize("unit", ["\u0301", "\U0001f1e6", "\ud800", "\r\n"])
def test_a_run_of_marks_is_still_cut(unit: str) -> None:
    """An endless character stays within its budget, and some of it stays."""
    for text in (unit * 5000, "a" + unit * 5000, unit * 5000 + "a"):
        for limit in (1, 10, 100):
            short = truncate_text(text, limit, count)
            assert short
            assert count(short) <= limit


def test_no_piece_is_measured_in_vain() -> None:
    """A text that fits is measured once. A search ends where nothing is left between what fits and what does not."""
    sizes: list[int] = []

    def measure(text: str) -> int:
        sizes.append(len(text))
        return 0 if len(text) <= 5 else 1000

    assert _take("abcde", 100, measure) == "abcde"
    assert sizes[0] == 5
    assert len(sizes) <= 2  # the piece, and its whole lines
    sizes.clear()
    assert (
        len(_take("x" * 9000, 100, lambda text: sizes.append(len(text)) or len(text) // LIKELY_CHARS_PER_UNIT)) >= 400
    )
    assert len(sizes) <= 2  # it is close enough at once
    sizes.clear()
    assert _take("x" * 40, 10, measure) == "xxxxx"
    assert len(sizes) < SEARCH_ROUNDS


@given(text=st.text("ab\n", max_size=200), size=st.integers(1, 30))
def test_pieces_join_to_the_text(text: str, size: int) -> None:
    """No piece is longer than the size; each ends at a line's end, if there is one within the size."""
    pieces = list(cut_pieces(text, size=size))
    assert "".join(pieces) == text
    assert all(len(piece) <= size for piece in pieces)
    assert all(piece.endswith("\n") or "\n" not in piece for piece in pieces[:-1])


def test_a_part_across_two_strides_is_found() -> None:
    """It may be at any place of a long text."""
    stride = 8 * PIECE_CHARS
    for at in (0, stride - 2, stride - 1, stride, 2 * stride - 1):
        assert holds("a" * at + "xyz" + "a" * stride * 2, "xyz")
    assert not holds("xy" * stride * 2, "xyz")
