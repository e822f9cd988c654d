"""Texts in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.text.head_tail import PIECE_CHARS, cut_lines, cut_pieces, holds


@given(text=st.text("ab\n", max_size=200), size=st.integers(1, 30))
def test_pieces_join_to_the_text(text: str, size: int) -> None:
    """No piece is longer than the size; each ends at a line's end, if there is one within the size."""
    pieces = list(cut_pieces(text, size=size))
    assert "".join(pieces) == text
    assert all(len(piece) <= size for piece in pieces)
    assert all(piece.endswith("\n") or "\n" not in piece for piece in pieces[:-1])


@given(lines=st.lists(st.sampled_from(["", "a" * 900, "b" * 9000, "c" * 70_000]), max_size=30))
def test_lines_stay_whole(lines: list[str]) -> None:
    """However long a line is."""
    text = "\n".join(lines)
    pieces = list(cut_lines(text))
    assert "".join(pieces) == text
    assert all(piece.endswith("\n") for piece in pieces[:-1])
    assert all(len(piece) <= PIECE_CHARS or "\n" not in piece[:-1] for piece in pieces)


def test_a_short_text_is_its_own_piece() -> None:
    text = "short " * 9
    assert next(cut_pieces(text)) is text


def test_a_part_across_two_strides_is_found() -> None:
    """It may be at any place of a long text."""
    stride = 8 * PIECE_CHARS
    for at in (0, stride - 2, stride - 1, stride, 2 * stride - 1):
        assert holds("a" * at + "xyz" + "a" * stride * 2, "xyz")
    assert not holds("xy" * stride * 2, "xyz")
