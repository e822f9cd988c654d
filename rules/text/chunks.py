"""A text in pieces, so that no single call into C holds the interpreter for long."""

from collections.abc import Iterator

PIECE_CHARS = 32_768
"""At most a few milliseconds of the slowest whole-text operation used here, on an ordinary core."""


def cut_pieces(text: str, after: str = "\n", before: str = "", size: int = PIECE_CHARS) -> Iterator[str]:
    """The text as pieces of at most `size` characters, each ending behind `after` where one stands in it.

    Else before `before`, where that is given and stands in it. The pieces joined are the text.
    """
    start = 0
    while len(text) - start > size:
        end = text.rfind(after, start, start + size) + 1
        if end <= start and before:
            end = text.rfind(before, start + 1, start + size)
        if end <= start:
            end = start + size
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def cut_lines(text: str, end_of_line: str = "\n") -> Iterator[str]:
    """The text as pieces of whole lines; only a piece of one line is longer than PIECE_CHARS."""
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = text.rfind(end_of_line, start, start + PIECE_CHARS) + 1
        if end <= start:
            end = text.find(end_of_line, start + PIECE_CHARS) + 1 or len(text)
        yield text[start:end]
        start = end
    if start < len(text) or not start:
        yield text[start:] if start else text


def holds(text: str, part: str) -> bool:
    """Whether `part` stands in the text; the whole is searched in strides, for a search may be slow on hostile text."""
    stride = 8 * PIECE_CHARS
    if len(text) <= stride:
        return part in text
    overlap = len(part) - 1
    return any(text.find(part, start, start + stride + overlap) >= 0 for start in range(0, len(text), stride))
