"""Counting tokens."""

import base64
import hashlib
from functools import cache
from importlib import resources
from types import SimpleNamespace

import pytest
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st

from trimtab.proxy.compaction import pool
from trimtab.proxy.compaction.tokenizers import exact as counter
from trimtab.proxy.compaction.tokenizers.exact import (
    PIECE_CHARS,
    PUBLISHED,
    SEARCHED_CHARS,
    VOCABULARIES,
    VocabularyError,
    count_by_heuristic,
    count_by_part,
    count_pieces,
    join_pattern,
    load_encoding,
    make_counter,
    read_ranks,
    split_text,
    zstd,
)
from trimtab.rules.conversation import CountTokens

SHA256 = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
"""SHA-256 of OpenAI's own rank files. Source: tiktoken_ext/openai_public.py."""
CODE = "def read(path):\n    with open(path) as file:\n        return [line.strip() for line in file]\n\n"
LOG = "2024-05-01 12:00:00,123 ERROR worker-7 GET /v1/items/93 500 in 0.12s; retrying\r\n"
PROSE = "Der schnelle braune Fuchs springt über den faulen Hund; it doesn't mind. 我喜欢猫。 "
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
LONG_TEXTS = st.lists(ATOMS | st.text(max_size=3), max_size=400).map("".join)
SHORT_TEXTS = st.lists(ATOMS | st.text(max_size=3), max_size=60).map("".join)


def _pack(vocabulary: str) -> bytes:
    return resources.files("trimtab.proxy.compaction").joinpath("vocabulary", f"{vocabulary}.zst").read_bytes()


@pytest.fixture(scope="module")
def packed() -> bytes:
    return _pack("o200k_base")


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_packed_vocabulary_is_openais_own(vocabulary: str) -> None:
    """The rank file rebuilt from the wheel's equals OpenAI's byte for byte. The wheel's is smaller than a megabyte."""
    packed = _pack(vocabulary)
    ranks = read_ranks(packed)
    text = b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())

    assert hashlib.sha256(text).hexdigest() == SHA256[vocabulary]
    assert len(packed) < 1_000_000


@pytest.mark.parametrize("damage", ["empty", "cut short", "flipped", "not zstd"])
def test_a_damaged_file_is_named_as_such(packed: bytes, damage: str) -> None:
    """Damage raises VocabularyError, so that the shell can fall back. It never gives a wrong vocabulary."""
    middle = len(packed) // 2
    damaged = {
        "empty": b"",
        "cut short": packed[:middle],
        "flipped": packed[:middle] + bytes([packed[middle] ^ 1]) + packed[middle + 1 :],
        "not zstd": b"version https://git-lfs.github.com/spec/v1\n",
    }[damage]

    with pytest.raises(VocabularyError):
        read_ranks(damaged)


@pytest.mark.parametrize("content", [b"", b"\x92\xc4\x01a", b"\x91\x01", b"\x81\xc4\x01a\x00"])
def test_another_content_is_damage(content: bytes) -> None:
    with pytest.raises(VocabularyError):
        read_ranks(zstd.compress(content))


def test_a_missing_file_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = SimpleNamespace(files=lambda _: resources.files("proxy") / "nowhere")
    monkeypatch.setattr(counter, "resources", elsewhere)

    for vocabulary in VOCABULARIES:
        with pytest.raises(VocabularyError):
            counter.load_encoding(vocabulary)


@given(st.text(max_size=300) | st.sampled_from([CODE, LOG, PROSE]).map(lambda text: text * 7))
def test_counts_are_tiktokens_own(count: CountTokens, encoding: tiktoken.Encoding, text: str) -> None:
    """Below the size of a piece, the count is exact: the first time and every time after."""
    expected = len(encoding.encode_ordinary(text))

    assert [count(text), count(text), make_counter(count_pieces(encoding))(text)] == [expected] * 3


def test_special_tokens_are_plain_text_and_a_lone_surrogate_does_not_raise(count: CountTokens) -> None:
    assert count("<|endoftext|>") > 1
    assert count("<|endoftext|>" * 10) > 10
    assert count("\ud800") > 0
    assert count("a\ud800b" * 50) > 0


@given(st.text(alphabet=" \n/a猫", min_size=1).map(lambda text: (text * 100_000)[: 3 * PIECE_CHARS + 17]))
def test_pieces_join_to_the_text(text: str) -> None:
    """Nothing is lost between pieces, none is empty, and none is too long."""
    pieces = list(split_text(text))

    assert "".join(pieces) == text
    assert all(0 < len(piece) <= PIECE_CHARS for piece in pieces)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("abcd" * 100, 100), ("猫" * 140, 100), ("ねこ" * 70, 100), ("고양" * 70, 100), ("猫abcd" * 14, 24)],
)
def test_the_heuristic_counts_wide_characters_apart(text: str, tokens: int) -> None:
    """A token has four characters, or 1.4 Chinese, Japanese or Korean ones."""
    assert count_by_heuristic(text) == tokens


@pytest.mark.parametrize("unit", [CODE, LOG, PROSE, "我喜欢猫。它们很可爱。"])
def test_the_heuristic_is_near(count: CountTokens, unit: str) -> None:
    """For everyday texts, it is within a factor of two of the tokenizer."""
    text = unit * 20

    assert count(text) / 2 < count_by_heuristic(text) < count(text) * 2


# How texts are split into words.


@cache
def _encodings(vocabulary: str) -> tuple[tiktoken.Encoding, tiktoken.Encoding]:
    """The encoding with our pattern, and the one with the published pattern."""
    return pool.load_encoding(vocabulary), load_encoding(vocabulary, is_published=True)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@given(text=SHORT_TEXTS)
def test_the_tokens_are_those_of_the_published_pattern(vocabulary: str, text: str) -> None:
    """Tokens are equal one by one, for words, signs and runs of white space in any order."""
    ours, published = _encodings(vocabulary)

    assert ours.encode_ordinary(text) == published.encode_ordinary(text)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@given(text=SHORT_TEXTS | st.sampled_from([CODE, LOG, PROSE, " " * 300, "=" * 200, "a\ud800b", "我喜欢猫" * 40]))
def test_a_text_is_counted_by_the_tokens_in_it(vocabulary: str, text: str) -> None:
    assert count_by_part(vocabulary, pool.read_vocabulary(vocabulary), text) == count_pieces(_encodings(vocabulary)[0])(
        text
    )


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("unit", [" ", "\t", "\n", " \n", "a", "'s", "7", "=", "/", "e\u0301"])
def test_so_they_are_for_a_whole_piece_of_one_thing(vocabulary: str, unit: str) -> None:
    """The piece has the largest size. The text after a run of white space decides where the run ends."""
    ours, published = _encodings(vocabulary)
    for behind in ("", "x", "\n", "'s", "\u00a0"):
        text = unit * (PIECE_CHARS // len(unit) - 8) + behind
        assert ours.encode_ordinary(text) == published.encode_ordinary(text), behind


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_only_white_space_is_stepped_through(vocabulary: str) -> None:
    """All words are one group, which has no look-ahead and no possessive quantifier."""
    words, blanks = join_pattern(vocabulary).rsplit(r")|\s+(?!\S)|", maxsplit=1)

    assert words.startswith("(?:")
    assert not any(sign in words for sign in ("(?!", "?+", "++", "*+", "3}+"))
    assert blanks == PUBLISHED[vocabulary][-1]


# Long texts are counted in pieces: exactly, wherever they are cut at a boundary.


@pytest.fixture(scope="module")
def encodings() -> dict[str, tiktoken.Encoding]:
    return {name: pool.load_encoding(name) for name in VOCABULARIES}


@pytest.fixture(params=VOCABULARIES)
def vocabulary(request: pytest.FixtureRequest, encodings: dict[str, tiktoken.Encoding]) -> tiktoken.Encoding:
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


@given(LONG_TEXTS)
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
    text, sizes = unit * (200_000 // len(unit)), list[int]()
    count_piece = count_pieces(vocabulary)

    def count(piece: str) -> int:
        sizes.append(len(piece))
        return count_piece(piece)

    counted: CountTokens = make_counter(count)
    assert 0 < counted(text) <= 6 * len(text)
    assert sum(sizes) == len(text)
    assert PIECE_CHARS - SEARCHED_CHARS < max(sizes) <= PIECE_CHARS
