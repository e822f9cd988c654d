"""A long text keeps head and tail."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import count, count_words

from trimtab.rules.results.json_records import cut_string
from trimtab.rules.results.select import split_units
from trimtab.rules.text.head_tail import (
    LIKELY_CHARS_PER_UNIT,
    PIECE_CHARS,
    SEARCH_ROUNDS,
    _take,
    ceil_boundary,
    cut_pieces,
    floor_boundary,
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
    """In the limit's unit. Without room for it the head stays, and a join that costs a token more is cut away."""
    short = truncate_text(LOG, 400, count_words, "words")
    head, _, rest = short.partition("\n[trimtab: ")
    marker, _, tail = rest.removeprefix("omitted ").partition("]\n")
    missing = count_words(LOG) - count_words(head) - count_words(tail)
    size, unit = marker.partition("(")[2].rstrip(")").split()
    assert unit == "words"
    assert abs(int(size) - missing) <= missing * 0.05
    short = truncate_text(LOG, 5, count)
    assert short
    assert LOG.startswith(short)
    assert truncate_text(LOG, 0, count) == ""

    def measure(text: str) -> int:
        return len(text) + text.count("x\n[")

    for limit in range(150, 200):
        short = truncate_text("x" * 2000, limit, measure)
        assert "x\n[trimtab: " in short
        assert measure(short) <= limit


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


def test_a_part_across_two_strides_is_found() -> None:
    """Anywhere in a long text; whose bytes are counted, not its characters."""
    stride = 8 * PIECE_CHARS
    for at in (0, stride - 2, stride - 1, stride, 2 * stride - 1):
        assert holds("a" * at + "xyz" + "a" * stride * 2, "xyz")
    assert not holds("xy" * stride * 2, "xyz")
    assert [measure_bytes(text) for text in ("a", "é", "\U0001f600", "\ud800")] == [1, 2, 4, 3]
    assert measure_bytes("aé\ud83d\ude00" * 300_000) == 9 * 300_000


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


GRAPHEMES = {
    "Chinese": "漢",
    "half-width Japanese with voicing": "\uff76\uff9e",
    "a Korean syllable": "한",
    "Korean jamo": "\u1112\u1161\u11ab",
    "two leading jamo": "\u1107\u1109\u1161",
    "a leading jamo before a syllable": "\u1100\uac00",
    "joined Devanagari consonants": "\u0915\u094d\u0937",
    "joined consonants with a joiner": "\u0915\u094d\u200d\u0937",
    "Thai with a vowel behind": "\u0e19\u0e33",
    "a letter with several marks": "e\u0301\u0323",
    "a thumb of some colour": "\U0001f44d\U0001f3fd",
    "a family": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "a flag": "\U0001f1e9\U0001f1ea",
    "a flag of letters": "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "a line break of two": "\r\n",
}
EACH = pytest.mark.parametrize("character", GRAPHEMES.values(), ids=GRAPHEMES)


def is_boundary(text: str, at: int) -> bool:
    """Whether a text may be cut at a place; after a line break it always may."""
    return floor_boundary("\n" + text, at + 1) == at + 1


def boundaries(characters: list[str]) -> set[int]:
    return {len("".join(characters[:number])) for number in range(len(characters) + 1)}


@EACH
def test_no_boundary_within_a_character(character: str) -> None:
    """There is one before it and one after it, whatever the context is."""
    for other in ("a", " ", "漢", "\U0001f600", character):
        text = other + character + other
        found = {at for at in range(len(text) + 1) if is_boundary(text, at)}
        assert found == boundaries([other, character, other])


@given(st.lists(st.sampled_from([*GRAPHEMES.values(), "a", "\n"]), max_size=12), st.integers(0, 60))
def test_the_nearest_boundary_is_found(characters: list[str], at: int) -> None:
    characters = [one for one in characters if one != "\r\n"]
    text = "".join(characters)
    at = min(at, len(text))
    places = {place for place in range(len(text) + 1) if is_boundary(text, place)}
    assert places == boundaries(characters)
    assert floor_boundary(text, at) == max((place for place in places if 0 < place <= at), default=at)
    assert ceil_boundary(text, at, len(text)) == min((place for place in places if at <= place < len(text)), default=at)


def test_a_run_of_marks_is_cut_anywhere() -> None:
    """If no boundary is near enough. A line break always ends a character, and flags are paired from the first on."""
    text = "a" + "\u0301" * 1000
    assert floor_boundary(text, 500, 400) == 500
    assert ceil_boundary(text, 500, 600) == 500
    assert is_boundary("\n\u0301", 1)
    assert is_boundary("\t\u0301", 1)
    for flags in [1, 32, 33, 250]:
        text = GRAPHEMES["a flag"] * flags
        assert [at for at in range(len(text)) if is_boundary(text, at)] == list(range(0, len(text), 2))


@pytest.mark.parametrize("character", [one for one in GRAPHEMES.values() if one != "\r\n"])
def test_no_text_is_cut_within_a_character(character: str) -> None:
    """Tested are head and tail, the pieces of a long line, and the head of a JSON string."""
    shift = 1
    line = "x" * shift + character * 900
    whole = {"x" * shift + character * number for number in range(901)}
    pieces = split_units(line, 240).texts
    assert "".join(pieces) == line
    for number in range(1, len(pieces)):
        assert "".join(pieces[:number]) in whole
    for limit in range(60, 120, 7):
        head, _, tail = truncate_text(line, limit, count).partition("\n[trimtab: ")
        assert head in whole
        assert tail.partition("]\n")[2].replace(character, "") == ""
        assert truncate_text(line, limit, measure_bytes).partition("\n[trimtab: ")[0] in whole | {""}
    for room in range(60, 120, 7):
        assert cut_string(f'"{line}"', room)[1:].partition(" [trimtab: ")[0] in whole
