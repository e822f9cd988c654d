"""A text as the units that are kept or left out: its lines, and pieces of those that are too long.

Law: the units joined are the text. No unit ends within a character as readers see it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from rules.graphemes import floor_boundary

BATCH_CHARS = 128 * 1024
"""Looked at by one call of a regular expression: it holds the interpreter for a few milliseconds at most."""
_BREAKS = (" ", ",", ";", ">", "}")
_BREAK_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a text, oldest first; `starts_line` says of each whether it begins a line."""

    texts: Sequence[str]
    starts_line: Sequence[bool]

    def number_lines(self) -> list[int]:
        """The number of the line that each unit stands in, from 1 on."""
        return list(accumulate(map(int, self.starts_line)))


def split_units(text: str, max_chars: int) -> Units:
    """Lines with their line breaks; a line longer than `max_chars` in pieces, cut behind a blank or a comma if near."""
    lines = text.split("\n")
    last = lines.pop()
    lines = [line + "\n" for line in lines]
    if last:
        lines.append(last)
    if not any(len(line) > max_chars for line in lines):
        return Units(lines, [True] * len(lines))
    texts: list[str] = []
    starts: list[bool] = []
    for line in lines:
        pieces = [line] if len(line) <= max_chars else _split_line(line, max_chars)
        texts += pieces
        starts += [True, *[False] * (len(pieces) - 1)]
    return Units(texts, starts)


def _split_line(line: str, max_chars: int) -> list[str]:
    pieces = []
    start = 0
    while len(line) - start > max_chars:
        stop = start + max_chars
        near = start + int(max_chars * _BREAK_SHARE)
        found = max(line.rfind(sign, near, stop) for sign in _BREAKS)
        at = found + 1 if found >= 0 else floor_boundary(line, stop, start + max_chars // 2)
        pieces.append(line[start:at])
        start = at
    pieces.append(line[start:])
    return pieces


def batch_lines(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Spans of lines, each of BATCH_CHARS or a line more: what one call may look at."""
    spans = []
    start = chars = 0
    for index, line in enumerate(lines):
        chars += len(line)
        if chars >= BATCH_CHARS:
            spans.append((start, index + 1))
            start, chars = index + 1, 0
    if start < len(lines):
        spans.append((start, len(lines)))
    return spans
