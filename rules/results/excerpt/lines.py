"""A text as the units that are kept or left out: its lines, and pieces of those that are too long.

Law: the units joined are the text. No unit ends within a character as readers see it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rules.text.chunks import cut_lines
from rules.text.graphemes import floor_boundary

MAX_BLANK = 200
_BREAKS = (" ", ",", ";", ">", "}")
_BREAK_SHARE = 0.8
_LINE = re.compile(r"[^\n]*+\n|[^\n]++")


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a text, oldest first: each with the number of its first line, from 1 on, and where it begins.

    `lines` and `offsets` have one more: the line behind the last one, and where the text ends. `texts` is what is read
    of each unit to judge it: all of it, but for the long gaps of a very long text (windows.py).
    """

    whole: str
    texts: Sequence[str]
    lines: Sequence[int]
    offsets: Sequence[int]

    def cut(self, start: int, stop: int) -> str:
        """The text of units [start, stop)."""
        return self.whole[self.offsets[start] : self.offsets[stop]]

    def chars(self, index: int) -> int:
        """The length of a unit."""
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
    """Lines with their line breaks; one longer than `max_chars` in pieces, cut behind a blank or a comma if near."""
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
    """The lines with their line breaks, those of one piece at a time: no call holds the interpreter for long."""
    for piece in cut_lines(text):
        yield from _LINE.findall(piece)


def _join_blank(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Each line, as one; a run of empty lines as so many."""
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
