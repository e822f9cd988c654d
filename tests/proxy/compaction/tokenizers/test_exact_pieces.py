"""Long texts are counted in pieces: exactly, wherever they are cut at a boundary."""

from collections.abc import Iterator

import pytest
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st
from support.sessions import DATA, needs_data, read_rows, recorded_files

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
READ_CHARS = 40_000
"""Characters that are read of each recorded tool output."""

WORDS = (
    "the", "Quick", "bROWN", "iPhone", "na\xefve", "cafe\u0301", "Gr\xf6\xdfe", "ΑΒΓδ", "\u017fs", "\u0149", "\u01c5",
)  # fmt: skip
MORE_WORDS = ("Щука", "我喜欢猫", "ねこ", "고양이", "हिन्दी", "สวัสดี", "عربي", "א", "\u02b0", "\xaa", "\u0130i")
NUMBERS = ("0", "7", "12", "131", "92", "1234", "3.14", "1e9", "0x1f", "20261122")
NUMERALS = ("\xbd", "3\xbd", "\xb2", "\u2167", "\u0663\u0664", "\u3280", "\u3007", "\u24691")
SIGNS = (
    *'.,;:!?={}[]()<>"`_#@/',
    "...",
    "--",
    "///",
    "<|endoftext|>",
    "\u20ac",
    "\u3002",
    "\u3001",
    "\uff0c",
    "\u2026",
)
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


def _recorded_texts() -> Iterator[str]:
    """Beginnings of the tool outputs, and messages of some conversations of each kind."""
    for file in sorted((DATA / "tool_outputs").iterdir()):
        if file.name != "index.jsonl":
            with file.open(encoding="utf-8", errors="replace", newline="") as lines:
                yield lines.read(READ_CHARS)
    for file in recorded_files("conversations"):
        session = next(read_rows(file))
        yield "".join(str(message["content"]) for message in session["messages"] if message.get("content"))[:READ_CHARS]


@needs_data
def test_recorded_texts_are_counted_exactly(vocabulary: tiktoken.Encoding) -> None:
    """Tool outputs and conversations are cut into pieces of the usual size, and into small ones."""
    count_piece = count_pieces(vocabulary)
    count = make_counter(count_piece)
    exact = 0
    for text in _recorded_texts():
        expected = count_piece(text)
        assert count(text) == expected
        pieces, is_exact = _split_small(text, 2000)
        if is_exact:
            assert sum(map(count_piece, pieces)) == expected
            exact += len(pieces) > 1
    assert exact > 30


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(unit * (200_000 // len(unit)), id=repr(unit))
        for unit in (
            *(" ", "a", "=", "\n", "7", "<|endoftext|>", "'s", "\x00"),
            *("猫", "\ud800", "\udc00\ud800", "\u0301"),
        )
    ],
)
def test_hostile_texts_are_counted_in_short_pieces(vocabulary: tiktoken.Encoding, text: str) -> None:
    """No piece is so long that the tokenizer becomes very slow."""
    sizes: list[int] = []
    count_piece = count_pieces(vocabulary)

    def count(piece: str) -> int:
        sizes.append(len(piece))
        return count_piece(piece)

    counted: CountTokens = make_counter(count)
    assert 0 < counted(text) <= 6 * len(text)
    assert sum(sizes) == len(text)
    assert PIECE_CHARS - SEARCHED_CHARS < max(sizes) <= PIECE_CHARS
