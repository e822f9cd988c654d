"""A text as the units that are kept or left out: its lines, and pieces of those that are too long.

Law: the units joined are the text. No unit ends within a character as readers see it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from rules.text.graphemes import floor_boundary

BATCH_CHARS = 128 * 1024
"""Looked at by one call of a regular expression: it holds the interpreter for a few milliseconds at most."""
MAX_BLANK = 200
LINE_CHARS = 16
"""What a line counts for beside its characters."""
_BREAKS = (" ", ",", ";", ">", "}")
_BREAK_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a text, oldest first: each with the number of its first line, from 1 on, and where it begins.

    `lines` and `offsets` have one more: the line behind the last one, and where the text ends.
    """

    texts: Sequence[str]
    lines: Sequence[int]
    offsets: Sequence[int]

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
    found = _Found(max_chars)
    for lines in _read_batches(text):
        found.add(lines)
    return Units(found.texts, [*found.numbers, found.number], found.offsets)


class _Found:
    """The units of a text as its lines are read."""

    def __init__(self, max_chars: int) -> None:
        self.texts: list[str] = []
        self.numbers: list[int] = []
        self.offsets = [0]
        self.number = 1
        self._max_chars = max_chars

    def add(self, lines: Sequence[str]) -> None:
        """A batch of lines; most need no look at each."""
        lengths = list(map(len, lines))
        if max(lengths) > self._max_chars or any(map(_is_blank, lines, lines[1:])):
            for line, count in _join_blank(lines):
                self._add_line(line, count)
            return
        self.texts += lines
        self.numbers += range(self.number, self.number + len(lines))
        self.offsets += islice(accumulate(lengths, initial=self.offsets[-1]), 1, None)
        self.number += len(lines)

    def _add_line(self, line: str, lines: int) -> None:
        texts, offsets = self.texts, self.offsets
        for piece in (line,) if len(line) <= self._max_chars else _split_line(line, self._max_chars):
            texts.append(piece)
            self.numbers.append(self.number)
            offsets.append(offsets[-1] + len(piece))
        self.number += lines


def _is_blank(before: str, line: str) -> bool:
    return line == before == "\n"


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


def _read_batches(text: str) -> Iterator[list[str]]:
    """The lines with their line breaks, a batch at a time: no call holds the interpreter for long."""
    start = 0
    while start < len(text):
        stop = text.find("\n", start + BATCH_CHARS) + 1 or len(text)
        lines = text[start:stop].split("\n")
        last = lines.pop()
        batch = [f"{line}\n" for line in lines]
        yield [*batch, last] if last else batch
        start = stop


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


def batch_lines(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Spans of lines, each of BATCH_CHARS or a line more; a line counts for some more: what one call may look at."""
    spans = []
    start = chars = 0
    for index, line in enumerate(lines):
        chars += len(line) + LINE_CHARS
        if chars >= BATCH_CHARS:
            spans.append((start, index + 1))
            start, chars = index + 1, 0
    if start < len(lines):
        spans.append((start, len(lines)))
    return spans
