"""Lone surrogates in JSON."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.json.decode import replace_lone_surrogates

PIECES = st.lists(
    st.sampled_from(
        [r"\ud83d", r"\ude00", r"\ud83d\ude00", r"\\", r"\"", r"\u00e9", "ud83d", "a", r"\n", r"\uDBFF", r"\uDFFF"]
    )
).map("".join)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"a\ud83d b", r"a\ufffd b"),
        (r"\ude00\ud83d", r"\ufffd\ufffd"),
        (r"\ud83d\ud83d\ude00", r"\ufffd\ud83d\ude00"),
        (r"\\ud83d", r"\\ud83d"),
        (r"\\\ud83d", r"\\\ufffd"),
        (r"\uD83D\uDE00", r"\uD83D\uDE00"),
    ],
)
def test_only_lone_surrogates_are_replaced(written: str, read: str) -> None:
    """Pairs stay, and so does a backslash that only looks like an escape."""
    assert replace_lone_surrogates(written.encode()) == read.encode()


@given(PIECES)
def test_what_comes_out_is_readable_and_as_long(text: str) -> None:
    """Every string of escapes can be decoded afterwards, and all offsets stay valid."""
    json = f'"{text}"'.encode()
    clean = replace_lone_surrogates(json)

    assert len(clean) == len(json)
    assert isinstance(msgspec.json.decode(clean), str)
