"""Long texts are counted in pieces: exactly, wherever they are cut at a boundary."""

import pytest
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st

from trimtab.proxy.compaction import pool
from trimtab.proxy.compaction.tokenizers import exact as counter
from trimtab.proxy.compaction.tokenizers.exact import (
    PIECE_CHARS,
    SEARCHED_CHARS,
    VOCABULARIES,
    count_pieces,
    make_counter,
    split_text,
)
from trimtab.rules.conversation import CountTokens

SMALL_PIECE = 200
WORDS = (
    "the", "Quick", "bROWN", "iPhone", "na\xefve", "cafe\u0301", "Gr\xf6\xdfe", "ΑΒΓδ", "\u017fs", "\u0149", "\u01c5",
)  # fmt: skip
MORE_WORDS = ("Щука", "我喜欢猫", "ねこ", "고양이", "हिन्दी", "สวัสดี", "عربي", "א", "\u02b0", "\xaa", "\u0130i")
NUMBERS = ("0", "7", "12", "131", "92", "1234", "3.14", "1e9", "0x1f", "20261122")
NUMERALS = ("\xbd", "3\xbd", "\xb2", "\u2167", "\u0663\u0664", "\u3280", "\u3007", "\u24691")
SIGNS = (*'.,;:!?={}[]()<>"`_#@/', "...", "--", "///", "<|endoftext|>", "\u20ac", "\u3002", "\u3001", "\uff0c")


MORE_SIGNS = ("\u2013", "\u2019", "\u201c", "\xb4", "\U0001f600", "\x00", "\x1c", "\u200b", "\u0301")
APOSTROPHES = ("'", "'s", "'S", "'t", "'LL", "'re", "'\u017f", "n't", "y'all'd've", "\u2019s", "''", "'x")
BLANKS = (
    " ", "  ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\n/", "\xa0", "\u3000", "\u2028", "\x0b", "\x85", "  \n\n ",
)  # fmt: skip
ATOMS = st.sampled_from((*WORDS, *MORE_WORDS, *NUMBERS, *NUMERALS, *SIGNS, *MORE_SIGNS, *APOSTROPHES, *BLANKS, *BLANKS))
TEXTS = st.lists(ATOMS | st.text(max_size=3), max_size=400).map("".join)
SHORT_TEXTS = st.lists(ATOMS | st.text(max_size=3), max_size=60).map("".join)


@pytest.fixture(scope="module")
def encodings() -> dict[str, tiktoken.Encoding]:
    return {name: pool.load_encoding(name) for name in VOCABULARIES}


@pytest.fixture(params=VOCABULARIES)
def vocabulary(request: pytest.FixtureRequest, encodings: dict[str, tiktoken.Encoding]) -> tiktoken.Encoding:
    """Each vocabulary in turn."""
    return encodings[request.param]


def _split_small(text: str, size: int = SMALL_PIECE) -> tuple[list[str], bool]:
    """The pieces of at most `size` characters, and whether every cut is at a boundary."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counter, "PIECE_CHARS", size)
        patch.setattr(counter, "SEARCHED_CHARS", size // 4)
        pieces = list(split_text(text))
        ends = []
        for piece in pieces[:-1]:
            ends.append((ends[-1] if ends else 0) + len(piece))
        return pieces, all(counter._find_boundary(text, end - 1, end) == end for end in ends)


@given(TEXTS)
def test_cuts_at_boundaries_cost_nothing(encodings: dict[str, tiktoken.Encoding], text: str) -> None:
    """The sum over the pieces is the count of the whole, for both vocabularies."""
    pieces, is_exact = _split_small(text)

    assert "".join(pieces) == text
    assert all(0 < len(piece) <= SMALL_PIECE for piece in pieces) or not text
    for encoding in encodings.values() if is_exact else ():
        count = count_pieces(encoding)
        assert sum(map(count, pieces)) == count(text)


@example("\xb2131")
@example("4\xbd92")
@example("\u2167299 9\u300714")
@given(SHORT_TEXTS)
def test_every_boundary_is_one(encodings: dict[str, tiktoken.Encoding], text: str) -> None:
    """All boundaries are tested, not only those where a piece happens to end."""
    for encoding in encodings.values():
        count = count_pieces(encoding)
        for at in range(1, len(text)):
            if counter._find_boundary(text, at - 1, at) == at:
                assert count(text[:at]) + count(text[at:]) == count(text), (text[:at], text[at:])


def test_everyday_text_is_cut_at_boundaries_only() -> None:
    """Words, digits and line breaks have boundaries everywhere."""
    for unit in (
        "The quick brown fox, 42 times; it doesn't. ",
        "a\n",
        "2026-05-01 12:00:00 GET /x 200\r\n",
        '{"k": [1, 2]}',
    ):
        pieces, is_exact = _split_small(unit * 2000)
        assert (is_exact, len(pieces) > 10) == (True, True)


@pytest.mark.parametrize("unit", [" ", "a", "\n", "<|endoftext|>", "\x00", "猫", "\ud800", "\u0301"], ids=repr)
def test_hostile_texts_are_counted_in_short_pieces(vocabulary: tiktoken.Encoding, unit: str) -> None:
    """No piece is so long that the tokenizer becomes very slow."""
    text, sizes = unit * (200_000 // len(unit)), list[int]()
    count_piece = count_pieces(vocabulary)

    def count(piece: str) -> int:
        sizes.append(len(piece))
        return count_piece(piece)

    counted: CountTokens = make_counter(count)
    assert 0 < counted(text) <= 6 * len(text)
    assert sum(sizes) == len(text)
    assert PIECE_CHARS - SEARCHED_CHARS < max(sizes) <= PIECE_CHARS
