"""A very long text as few units. It is read window by window; only units that may be kept stay, and gaps between them.

Law: the units joined are the text, with its true line numbers. A function of the text, the budget and the call. For any
text, memory is bounded by the objects of one window and of the units that may be kept.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from trimtab.rules.results.excerpt.kinds import Kind, add_terms, tell_kind
from trimtab.rules.results.excerpt.select import Units, split_units
from trimtab.rules.text.head_tail import floor_boundary

LARGE_CHARS, LARGE_LINES = 1024 * 1024, 20_000
"""A longer text, or one with more lines, is read window by window. Chosen: tests/attack/test_memory.py measures what
such texts cost in memory."""
WINDOW_CHARS = 256 * 1024  # chosen: bounds the objects of one window
MOST_UNITS, MOST_CHARS = 8192, 512 * 1024
"""Bounds of the units kept, without the two ends; for a large budget, BUDGETS_KEPT times the budget. Chosen: bounds
the memory."""
BUDGETS_KEPT = 2  # chosen: more candidates than can be selected
GAP_CHARS = 400
"""Part of a gap's first line that is read to score it. Chosen: as much as scores/signals.py reads of a line."""
SAMPLES, SAMPLE_LINES = 8, 40
"""The kind is recognised in 8 runs of 40 neighbouring lines, spread over the text, as in kinds.py."""


class _Found(NamedTuple):
    """A unit that may be kept. Sorted, the highest scores come first, and of equal ones the earliest.

    loss: the negative score.
    start, stop: its positions in the text.
    line: number of its first line.
    """

    loss: float
    start: int
    stop: int
    line: int


@dataclass(frozen=True, slots=True)
class Scan:
    """How a text is read.

    line_chars: longest unit.
    limit, chars: the budget in tokens, and about the same in characters.
    terms: units that contain one of these matter.
    most_units: how many units are kept at most, without the two ends; more for a large budget.
    """

    line_chars: int
    limit: int
    chars: int
    terms: Sequence[str] = ()
    window_chars: int = WINDOW_CHARS
    most_units: int = MOST_UNITS


def is_large(text: str) -> bool:
    return len(text) > LARGE_CHARS or (len(text) > LARGE_LINES and text.count("\n") > LARGE_LINES)


def tell_large_kind(text: str, line_chars: int) -> Kind:
    run_chars = SAMPLE_LINES * line_chars
    step = max(len(text) - run_chars, 0) // (SAMPLES - 1)
    starts = (text.rfind("\n", 0, at) + 1 if at else 0 for at in range(0, step * (SAMPLES - 1) + 1, max(step, 1)))
    runs = (split_units(text[start : start + run_chars], line_chars).texts[:SAMPLE_LINES] for start in starts)
    return tell_kind(list(chain.from_iterable(runs)))


def split_large(text: str, kind: Kind, scan: Scan) -> Units:
    head, tail = min(scan.chars, len(text)), max(len(text) - scan.chars, 0)
    beginning: list[_Found] = []
    end: deque[_Found] = deque(maxlen=scan.limit)
    best = _Best(max(scan.most_units, BUDGETS_KEPT * scan.limit), max(MOST_CHARS, BUDGETS_KEPT * scan.chars))
    line = 1
    for start, stop in _cut_windows(text, scan.window_chars):
        units = split_units(text[start:stop], scan.line_chars)
        scores = kind.score(units.texts)
        add_terms(scores, units.whole, units.offsets, scan.terms)
        for index, offset in enumerate(units.offsets[:-1]) if start < head or stop > tail else ():
            if start + offset < head and len(beginning) < scan.limit:
                beginning.append(_place(units, index, 0.0, start, line))
            elif start + units.offsets[index + 1] > tail:
                end.append(_place(units, index, 0.0, start, line))
        best.take(_place(units, index, score, start, line) for index, score in scores.items() if score > best.floor)
        # A window that ends within a line leaves that line to the next window.
        line += units.lines[-1] - 1 - (not units.whole.endswith("\n"))
    return _join(text, _sort(beginning, best.found(), end), line + (not text.endswith("\n")))


def _sort(*found: Iterable[_Found]) -> list[_Found]:
    places = {unit.start: unit for unit in chain.from_iterable(found)}
    return [places[start] for start in sorted(places)]


def _place(units: Units, index: int, score: float, start: int, line: int) -> _Found:
    """A unit of the window that begins at position `start`, in line number `line`."""
    offsets = units.offsets
    return _Found(-score, start + offsets[index], start + offsets[index + 1], line - 1 + units.lines[index])


def _cut_windows(text: str, size: int) -> Iterator[tuple[int, int]]:
    """Windows that end after a line, unless it is very long; none has more than LARGE_LINES lines."""
    start = 0
    while start < len(text):
        stop = min(start + size, len(text))
        while text.count("\n", start, stop) > LARGE_LINES:
            stop = (start + stop) // 2
        if stop < len(text):
            stop = text.rfind("\n", start, stop) + 1 or floor_boundary(text, stop, (start + stop) // 2)
        yield start, stop
        start = stop


class _Best:
    """The best units of a stream. A unit with a score of at most `floor` cannot be among them any more."""

    def __init__(self, most_units: int, most_chars: int) -> None:
        self.floor = 0.0
        self._most_units, self._most_chars = most_units, most_chars
        self._kept: list[_Found] = []

    def take(self, units: Iterator[_Found]) -> None:
        for unit in units:
            self._kept.append(unit)
            if len(self._kept) >= 2 * self._most_units:
                self._shrink()

    def _shrink(self) -> None:
        self._kept.sort()
        if len(self._kept) > self._most_units:
            del self._kept[self._most_units :]
            self.floor = -self._kept[-1].loss

    def found(self) -> list[_Found]:
        self._shrink()
        left = self._most_chars
        for number, unit in enumerate(self._kept):
            left -= unit.stop - unit.start
            if left < 0:
                return self._kept[:number]
        return self._kept


def _join(text: str, found: Sequence[_Found], line: int) -> Units:
    """The units of the whole text: those found, and the gaps between them. `line` is the line number after its end."""
    texts: list[str] = []
    lines: list[int] = []
    offsets = [0]

    def add(start: int, stop: int, number: int, *, is_gap: bool) -> int:
        texts.append(text[start : min(stop, start + GAP_CHARS)].partition("\n")[0] if is_gap else text[start:stop])
        lines.append(number)
        offsets.append(stop)
        return number + text.count("\n", start, stop)

    number = 1
    for _, start, stop, begins in (*found, _Found(0.0, len(text), len(text), line)):
        for cut in _cut_gap(text, offsets[-1], start):
            number = add(offsets[-1], cut, number, is_gap=True)
        if start < stop:
            number = add(start, stop, begins, is_gap=False)
    return Units(text, texts, [*lines, line], offsets)


def _cut_gap(text: str, start: int, stop: int) -> Iterator[int]:
    """The ends of a gap's parts: the rest of a line, then whole lines, then the beginning of a line."""
    if start >= stop:
        return
    first = text.find("\n", start, stop) + 1
    last = text.rfind("\n", start, stop) + 1
    if start and text[start - 1] != "\n" and start < first < stop:
        yield first
        start = first
    if start < last < stop:
        yield last
    yield stop
