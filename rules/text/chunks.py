"""Split a text into pieces, so that no single call into C code holds the GIL for long."""

from collections.abc import Iterator

PIECE_CHARS = 32_768
"""The slowest whole-text operation in use takes at most a few milliseconds for this many characters, on one core."""


def cut_pieces(text: str, after: str = "\n", before: str = "", size: int = PIECE_CHARS) -> Iterator[str]:
    """Split the text into pieces of at most `size` characters; joined, they are the text.

    A piece ends after the last `after` in it. If it has none, it ends before the last `before` (if given). If it has
    neither, it is cut at `size`. `after` must be one character.
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
    """Split the text into pieces of whole lines; joined, they are the text.

    A piece is longer than PIECE_CHARS only if it is a single line. An empty text is one empty piece.
    """
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
    """Whether the text contains `part`.

    A long text is searched in overlapping strides, because one search in hostile text may hold the GIL for long.
    """
    stride = 8 * PIECE_CHARS
    if len(text) <= stride:
        return part in text
    overlap = len(part) - 1
    return any(text.find(part, start, start + stride + overlap) >= 0 for start in range(0, len(text), stride))
