"""How texts are split into words."""

from functools import cache

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.compaction.tokenizers.exact import PIECE_CHARS, PUBLISHED, VOCABULARIES, join_pattern, load_encoding

WORDS = (
    "'s", "'LL", "don't", "IT'\u017f", "def ", "McDonald", "HTTPServer", "x86_64", "1234567", "\u216712", "caf\u00e9",
    "e\u0301\u0301", "\u01c5\u02b0", "\u732b\u304c", "\U0001f469\u200d\U0001f467", "<|endoftext|>", "://",
    "=== ", "//\n", " ", "  ", "\t", "\n", "\r\n", "\r", " \n ",
    "\x0b\x0c", "\u00a0", "\u3000\u2028", "\u0085", "'", "-", "\x00",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=40).map("".join)


@cache
def _encodings(vocabulary: str) -> tuple[tiktoken.Encoding, tiktoken.Encoding]:
    """The encoding with our pattern, and the one with the published pattern."""
    return load_encoding(vocabulary), load_encoding(vocabulary, is_published=True)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@given(text=TEXTS)
def test_the_tokens_are_those_of_the_published_pattern(vocabulary: str, text: str) -> None:
    """Tokens are equal one by one, for words, signs and runs of white space in any order."""
    ours, published = _encodings(vocabulary)

    assert ours.encode_ordinary(text) == published.encode_ordinary(text)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("behind", ["", "x", "\n", "'s", "\u00a0"])
@pytest.mark.parametrize("unit", [" ", "\t", "\n", " \n", "a", "'s", "7", "=", "/", "e\u0301"])
def test_so_they_are_for_a_whole_piece_of_one_thing(vocabulary: str, unit: str, behind: str) -> None:
    """The piece has the largest size. The text after a run of white space decides where the run ends."""
    ours, published = _encodings(vocabulary)
    text = unit * (PIECE_CHARS // len(unit) - 8) + behind

    assert ours.encode_ordinary(text) == published.encode_ordinary(text)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_only_white_space_is_stepped_through(vocabulary: str) -> None:
    """All words are one group, which has no look-ahead and no possessive quantifier."""
    words, blanks = join_pattern(vocabulary).rsplit(r")|\s+(?!\S)|", maxsplit=1)

    assert words.startswith("(?:")
    assert not any(sign in words for sign in ("(?!", "?+", "++", "*+", "3}+"))
    assert blanks == PUBLISHED[vocabulary][-1]
