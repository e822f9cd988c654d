"""A text as units (lines, and pieces of lines that are too long), and which of them are kept within a budget.

Budgets and costs are in tokens, or in units of about that size if the limit is in bytes. Markers always name tokens.

Law: the units joined are the text, and no unit ends within a grapheme. Never over the budget. Kept units stay
unchanged; a marker for each gap says what is missing and how to get it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import accumulate

import msgspec

from trimtab.rules.text.head_tail import Measure, cut_lines, floor_boundary
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import READ_LINES, READ_PART, mark_gap, mark_next_gap

MAX_BLANK = 200  # empty lines that make one unit; chosen: bounds the units of a text of empty lines
_BREAKS = (" ", ",", ";", ">", "}")
_BREAK_SHARE = 0.8  # a piece ends after a break in its last fifth, if there is one; chosen
_LINE = compile_late(r"[^\n]*+\n|[^\n]++")


class Units(msgspec.Struct, frozen=True):
    """The units of a text, in order.

    whole: the text.
    texts: what is read of each unit to score it: all of it, except for the gaps of a very long text (kinds.py).
    lines: the number of each unit's first line, from 1 on; then the number of the line after the last one.
    offsets: the position at which each unit begins; then the length of the text.
    """

    whole: str
    texts: Sequence[str]
    lines: Sequence[int]
    offsets: Sequence[int]

    def cut(self, start: int, stop: int) -> str:
        return self.whole[self.offsets[start] : self.offsets[stop]]

    def chars(self, index: int) -> int:
        return self.offsets[index + 1] - self.offsets[index]

    def last_line(self, index: int) -> int:
        return max(self.lines[index], self.lines[index + 1] - 1)

    def is_part(self, start: int, stop: int) -> bool:
        """Whether units [start, stop) are part of one line, and not all of it."""
        if self.lines[start] != self.lines[stop - 1]:
            return False
        begins = start == 0 or self.lines[start - 1] != self.lines[start]
        return not (begins and self.lines[stop] != self.lines[start])


def split_units(text: str, max_chars: int) -> Units:
    """Lines with their breaks; a run of empty ones is a unit. Longer ones are cut, if possible after one of _BREAKS."""
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


GAP_TOKENS = 14  # About what a marker costs. A gap of at most this size is kept instead of marked.
FILLED_FIRST = 0.5  # Share of the room that is left for the text's beginning; the rest is for its end. Chosen.
ROUNDS = 8  # attempts to come near the limit; chosen
SORTED_AT_ONCE = 8192  # chosen: sorting many more scores at once would hold the interpreter
USED_SHARE = 0.97  # A selection that takes so much is not enlarged. Chosen: one more attempt would gain little.


class Shares(msgspec.Struct, frozen=True):
    """Shares of the budget for the first and the last lines of a text, whatever they contain."""

    head: float
    tail: float


class Guide(msgspec.Struct, frozen=True):
    """The scores and line numbers of a text's units.

    scores: how much units matter, by their index; units without a score do not.
    numbers: the line number of each unit for the markers, as a reader would ask for it: shown in the text, or counted.
        Empty if a reader cannot ask for lines.
    how: how to see a part that has no line numbers.
    """

    scores: Mapping[int, float]
    numbers: Sequence[int] = ()
    how: str = READ_PART


class Selection:
    def __init__(self, units: Units, total: int, guide: Guide, tokens: int | None = None) -> None:
        """`total`: the text's size in the unit of its limit. `tokens`: its tokens, if the limit is in another unit."""
        chars = max(units.offsets[-1], 1)
        self._units = units
        self._rate = total / chars
        self._token_rate = self._rate if tokens is None else tokens / chars
        self._scores = guide.scores
        self._numbers, self._how = guide.numbers, guide.how

    def write(self, limit: int, shares: Shares, measure: Measure) -> str | None:
        """The excerpt, of at most `limit` by `measure`; None if not even the ends and a marker fit."""
        units = range(len(self._units.texts))
        fixed = {*self._take(units, limit * shares.head), *self._take(units[::-1], limit * shares.tail)}
        wanted = ((score, -index) for index, score in self._scores.items() if index not in fixed)
        # Each unit costs a token or more, so `limit` of them are enough. Sorting a million would hold the interpreter.
        most = sorted(wanted, reverse=True) if len(self._scores) <= SORTED_AT_ONCE else nlargest(limit, wanted)
        return self._fit(limit, fixed, [-place for _, place in most], measure)

    def _fit(self, limit: int, fixed: set[int], wanted: Sequence[int], measure: Measure) -> str | None:
        """The largest selection found within the limit. Each round corrects the room, or bisects it."""
        room, best, best_size = float(limit), None, 0
        low, high = 0.0, float("inf")
        for _ in range(ROUNDS):
            text = self._join(self._choose(room, fixed, wanted))
            size = measure(text)
            if size <= limit:
                low = max(low, room)
                if best is None or size > best_size:
                    best, best_size = text, size
                if size >= limit * USED_SHARE:
                    break
            else:
                high = min(high, room)
            guess = room + (limit * (1 + USED_SHARE) / 2 - size)
            room = guess if low < guess < high else (low + min(high, 2 * limit)) / 2
        return best

    def _choose(self, room: float, fixed: set[int], wanted: Sequence[int]) -> set[int]:
        """Units that cost about `room`: the ends, then those with the highest scores, then more from both ends."""
        kept = set(fixed)
        left = room - sum(map(self._cost, fixed)) - 2 * GAP_TOKENS
        for index in wanted:
            if index in kept:
                continue
            is_alone = index - 1 not in kept and index + 1 not in kept
            cost = self._cost(index) + (GAP_TOKENS if is_alone else 0)
            if cost <= left:
                kept.add(index)
                left -= cost
            elif left < GAP_TOKENS:
                break
        return self._fill(kept, left)

    def _fill(self, kept: set[int], left: float) -> set[int]:
        """Add more units at the beginning and at the end, as far as there is room."""
        total = len(self._units.texts)
        for places, share in ((range(total), FILLED_FIRST), (range(total - 1, -1, -1), 1.0)):
            room = left * share
            for index in places:
                if index in kept:
                    continue
                cost = self._cost(index)
                if cost > room:
                    break
                kept.add(index)
                room -= cost
                left -= cost
        return kept

    def _take(self, indexes: range, room: float) -> list[int]:
        taken = []
        for index in indexes:
            room -= self._cost(index)
            if room < 0:
                break
            taken.append(index)
        return taken

    def _cost(self, index: int) -> float:
        return self._units.chars(index) * self._rate + 1

    def _join(self, kept: set[int]) -> str:
        """The kept units, and a marker for each gap that costs more than a marker."""
        units, offsets = self._units, self._units.offsets
        pieces: list[str] = []
        previous, is_first, total = -1, True, len(units.texts)
        for index in [*sorted(kept), total]:
            chars = offsets[index] - offsets[previous + 1]
            if chars and round(chars * self._rate) <= GAP_TOKENS:
                pieces.append(units.cut(previous + 1, index))
            elif chars:
                if pieces and not pieces[-1].endswith("\n"):
                    pieces.append("\n")
                pieces.append(self._mark(previous + 1, index, round(chars * self._token_rate), is_first=is_first))
                is_first = False
            if index < total:
                pieces.append(units.cut(index, index + 1))
            previous = index
        return "".join(pieces)

    def _mark(self, start: int, stop: int, tokens: int, *, is_first: bool) -> str:
        """The marker for units [start, stop). The first one of a text also says how to get what is missing."""
        first, last = self._units.lines[start], self._units.last_line(stop - 1)
        if first == last:
            chars = self._units.offsets[stop] - self._units.offsets[start]
            which = f"line {self._numbers[start]}" if self._numbers else "a line"
            what = f"{chars} characters of {which}" if self._units.is_part(start, stop) else "1 line"
        else:
            what = f"{last - first + 1} lines"
        where = self._name(start, stop)
        if is_first:
            return mark_gap(where or what, tokens, READ_LINES if where else self._how) + "\n"
        return mark_next_gap(where or what, tokens) + "\n"

    def _name(self, start: int, stop: int) -> str:
        """The numbers of the lines; empty if they are not known, or if the units are a part of one line."""
        if not self._numbers or self._units.is_part(start, stop):
            return ""
        first = self._numbers[start]
        last = self._numbers[stop - 1] + self._units.last_line(stop - 1) - self._units.lines[stop - 1]
        return f"lines {first}-{last}" if first < last else f"line {first}"
