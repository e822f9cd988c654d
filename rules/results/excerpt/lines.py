"""A text as units, each of which is kept or left out: lines, and pieces of lines that are too long.

Law: the units joined are the text. No unit ends within a grapheme.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rules.text.head_tail import cut_lines, floor_boundary

MAX_BLANK = 200  # empty lines that make one unit; chosen: bounds the units of a text of empty lines
_BREAKS = (" ", ",", ";", ">", "}")
_BREAK_SHARE = 0.8  # a piece ends after a break in its last fifth, if there is one; chosen
_LINE = re.compile(r"[^\n]*+\n|[^\n]++")


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a text, in order.

    whole: the text.
    texts: what is read of each unit to score it: all of it, except for the gaps of a very long text (windows.py).
    lines: the number of each unit's first line, from 1 on; then the number of the line after the last one.
    offsets: the position at which each unit begins; then the length of the text.
    """

    whole: str
    texts: Sequence[str]
    lines: Sequence[int]
    offsets: Sequence[int]

    def cut(self, start: int, stop: int) -> str:
        """The text of units [start, stop)."""
        return self.whole[self.offsets[start] : self.offsets[stop]]

    def chars(self, index: int) -> int:
        """The length of a unit in characters."""
        return self.offsets[index + 1] - self.offsets[index]

    def last_line(self, index: int) -> int:
        """The number of the last line of a unit."""
        return max(self.lines[index], self.lines[index + 1] - 1)

    def is_part(self, start: int, stop: int) -> bool:
        """Whether units [start, stop) are part of one line, and not all of it."""
        if self.lines[start] != self.lines[stop - 1]:
            return False
        begins = start == 0 or self.lines[start - 1] != self.lines[start]
        return not (begins and self.lines[stop] != self.lines[start])


def split_units(text: str, max_chars: int) -> Units:
    """Lines with their line breaks; a run of empty lines is one unit.

    A line longer than `max_chars` is cut into pieces, if possible after a blank or one of the other _BREAKS.
    """
    whole_lines = list(_read_lines(text))
    if "\n\n" not in text and max(map(len, whole_lines), default=0) <= max_chars:
        starts = list(accumulate(map(len, whole_lines), initial=0))
        return Units(text, whole_lines, range(1, len(whole_lines) + 2), starts)
    texts: list[str] = []
    numbers: list[int] = []
    offsets = [0]
    number = 1
    for line, count in _join_blank(whole_lines):
        for piece in (line,) if len(line) <= max_chars else _split_line(line, max_chars):
            texts.append(piece)
            numbers.append(number)
            offsets.append(offsets[-1] + len(piece))
        number += count
    return Units(text, texts, [*numbers, number], offsets)


def _read_lines(text: str) -> Iterator[str]:
    """The lines with their line breaks, read piece by piece so that no call holds the interpreter for long."""
    for piece in cut_lines(text):
        yield from _LINE.findall(piece)


def _join_blank(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Each line with the count 1; a run of empty lines as one text with their number."""
    blank = 0
    for line in lines:
        if line == "\n" and blank < MAX_BLANK:
            blank += 1
            continue
        if blank:
            yield "\n" * blank, blank
            blank = 0
        yield line, 1
    if blank:
        yield "\n" * blank, blank


def _split_line(line: str, max_chars: int) -> list[str]:
    pieces = []
    start = 0
    while len(line) - start > max_chars:
        stop = start + max_chars
        near = start + int(max_chars * _BREAK_SHARE)
        found = max(line.rfind(sign, near, stop) for sign in _BREAKS)
        at = floor_boundary(line, found + 1 if found >= 0 else stop, start + max_chars // 2)
        pieces.append(line[start:at])
        start = at
    pieces.append(line[start:])
    return pieces
