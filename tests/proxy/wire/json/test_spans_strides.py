"""Searching JSON in strides finds what one pattern over the whole text would find."""

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from trimtab.proxy.wire.json.decode import mend, replace_lone_surrogates
from trimtab.proxy.wire.json.spans import STRIDE_BYTES, STRING, close_string, count_bytes, find_tokens, holds

_TOKEN = re.compile(STRING + rb'|"|,|NaN', re.DOTALL)
_WHOLE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|,|(?P<number>NaN|Infinity)', re.DOTALL)
"""The same with one simple pattern, which holds the interpreter."""
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
FILLERS = [b" " * (STRIDE_BYTES - 9), b"a" * (STRIDE_BYTES - 3), b"\\\\" * (STRIDE_BYTES // 2 - 2), b""]
PIECES = st.lists(
    st.one_of(
        st.sampled_from([b'"', b"\\", b'\\"', b",", b"NaN", b"Infinity", b"N", b"a", b"\\ud800", b"\\ud83d\\ude00"]),
        st.sampled_from([b"\xed\xa0\x80", b"\xed", b"x" * 1100, b" "]),
    ),
    max_size=16,
).map(b"".join)


def _zeros(found: "re.Match[bytes]") -> bytes:
    return b"0".ljust(len(found[0])) if found["number"] else found[0]


@given(PIECES, st.sampled_from(FILLERS), PIECES)
def test_what_is_mended_does_not_depend_on_the_strides(before: bytes, filler: bytes, behind: bytes) -> None:
    """Numbers outside strings, lone surrogates, and surrogates' bytes, wherever a stride ends."""
    text = before + filler + behind
    expected = _ESCAPE.sub(lambda found: rb"\ufffd" if found["lone"] else found[0], text)
    assert replace_lone_surrogates(text) == expected
    expected = re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]", b"\xef\xbf\xbd", expected)
    assert mend(text) == _WHOLE.sub(_zeros, expected)


@pytest.mark.parametrize(
    "token", [b"NaN", b"Infinity", b"\\ud800", b"\\ud83d\\ude00", b"\xed\xa0\x80\xed\xa0\x80", b'"NaN"']
)
def test_what_stands_across_the_end_of_a_stride_is_mended(token: bytes) -> None:
    """Every place around that end is tried."""
    for before in range(STRIDE_BYTES - len(token) - 1, STRIDE_BYTES + 2):
        assert mend(b" " * before + token) == b" " * before + mend(token)


@given(PIECES, st.sampled_from(FILLERS), PIECES)
def test_tokens_begin_where_they_begin_in_the_whole_text(before: bytes, filler: bytes, behind: bytes) -> None:
    """Strings, also very long ones and one that nothing ends, hide what is in them."""
    text = before + filler + behind
    found = [token.start() for token in find_tokens(_TOKEN, text, longest=3)]
    assert found == [token.start() for token in _WHOLE.finditer(text) if token["number"] != b"Infinity"]


@pytest.mark.parametrize(
    ("text", "end"),
    [(b'a"b', 2), (b'\\"b"', 4), (b"abc", 3), (b"ab\\", 3), (b"", 0), (b"\\\\" * 300_000 + b'"x', 600_001)],
)
def test_a_string_ends_at_the_first_quotation_mark_that_is_not_escaped(text: bytes, end: int) -> None:
    """Without such a mark, it ends at the text's end."""
    assert close_string(text, 0) == end


@given(PIECES, st.sampled_from(FILLERS), PIECES)
def test_a_search_in_strides_finds_what_one_search_finds(before: bytes, filler: bytes, behind: bytes) -> None:
    """Across the strides' ends, too."""
    text = before + filler + behind
    assert holds(text, b"Infinity") == (b"Infinity" in text)
    assert holds(text, b"\\ud") == (b"\\ud" in text)
    assert count_bytes(text, b",") == text.count(b",")
