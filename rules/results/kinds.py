"""What to look for in a text: the terms of the call, and the scores for the text's kind. A very long text as few units.

Law: a table of small functions, one for each kind. A kind is recognised in a sample spread over the whole text. A term
that occurs in more than a few lines carries no information and raises no score.

A very long text is read window by window; only units that may be kept stay, and gaps between them. The units joined are
the text, with its true line numbers: a function of the text, the budget and the call. For any text, memory is bounded
by the objects of one window and of the units that may be kept.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from trimtab.rules.conversation import ToolCall
from trimtab.rules.results.scores import (
    is_commits,
    is_listing,
    is_matches,
    is_page,
    is_prose,
    is_source,
    score_commits,
    score_listing,
    score_log,
    score_matches,
    score_prose,
    score_source,
)
from trimtab.rules.results.select import Shares, Units, split_units
from trimtab.rules.results.signals import STARTS, holds_word, read_signal
from trimtab.rules.text.head_tail import floor_boundary
from trimtab.rules.text.late import compile_late

TERM_SCORE = 9.0  # chosen: between the scores of loud lines and of errors (signals.py)
NEAR_LINES, NEAR_SHARE = range(-1, 9), 0.75
"""Positions of lines around a line with a term, relative to it, and their share of its score. Most of them are after
it, because the body of a definition follows its name."""
# A term may be in this share of the lines, or in 6 lines if that is more. Chosen: in more, it selects nothing.
MAX_LINES_SHARE = 0.05
MIN_MAX_LINES = 6
# Chosen: each term costs a search of the whole text, and short words are in too many lines.
MAX_TERMS = 24
MIN_TERM_CHARS = 4
MAX_ARGUMENT_CHARS = 4000  # part of the arguments that is read; chosen: longer ones carry files
_WORD = compile_late(r"[A-Za-z_\u0080-\U0010ffff][\w.$-]{3,63}")
_COMMON = frozenset({
    "command", "content", "path", "file", "files", "pattern", "query", "include", "exclude", "head", "tail", "grep",
    "find", "echo", "true", "false", "null", "python", "python3", "timeout", "bash", "view_range", "line", "lines",
    "start", "stop", "limit", "offset", "count", "name", "type", "recursive", "regex", "directory", "string",
    "text",
})  # fmt: skip


def find_terms(call: ToolCall | None) -> tuple[str, ...]:
    """Words of the call's arguments that the result may contain, in their order: identifiers, names, other words."""
    if call is None:
        return ()
    words = dict.fromkeys(_WORD.findall(call.arguments[:MAX_ARGUMENT_CHARS].replace("\\n", " ").replace("\\", " ")))
    bare = dict.fromkeys(word.strip(".-") for word in words)
    return tuple(word for word in bare if len(word) >= MIN_TERM_CHARS and word.lower() not in _COMMON)[:MAX_TERMS]


def add_terms(scores: dict[int, float], text: str, offsets: Sequence[int], terms: Sequence[str]) -> None:
    """Raise the scores of units that contain a term, and of those around them. A higher score stays.

    offsets: the position in `text` at which each unit begins; then the length of the text.
    """
    units = len(offsets) - 1
    most = max(MIN_MAX_LINES, int(units * MAX_LINES_SHARE))
    for term in terms:
        found = _find_units(text, offsets, term, most + 1)
        if len(found) > most:
            continue
        for rank, index in enumerate(found):
            for distance in NEAR_LINES:
                if 0 <= index + distance < units:
                    score = TERM_SCORE * (NEAR_SHARE if distance else 1.0) * (1 + rank) ** -0.3
                    scores[index + distance] = max(scores.get(index + distance, 0.0), score)


def _find_units(text: str, offsets: Sequence[int], term: str, most: int) -> list[int]:
    """The first `most` units that contain the term, or its beginning."""
    found: list[int] = []
    at = text.find(term)
    while at >= 0 and len(found) < most:
        found.append(bisect_right(offsets, at) - 1)
        at = text.find(term, offsets[found[-1] + 1])
    return found


SAMPLE_RUNS, RUN_LINES = 8, 40  # A sample has 8 runs of 40 neighbouring lines. Chosen: that is all lines of most texts.
MAX_SIGNALLED_SHARE = 0.04  # Share of lines with signals that code and prose do not exceed. Chosen.
_ENDS = Shares(0.06, 0.06)


class Kind(msgspec.Struct, frozen=True):
    """A kind of text. There is none for JSON, which is recognised by reading it as JSON.

    score: scores lines by their index; lines that it leaves out have no score.
    ends: the shares of the budget for the first and the last lines, whatever they contain.
    """

    score: Callable[[Sequence[str]], dict[int, float]]
    ends: Shares = _ENDS


COMMITS = Kind(score_commits)
MATCHES = Kind(score_matches)
LISTING = Kind(score_listing)
SOURCE = Kind(score_source, Shares(0.12, 0.03))
PROSE = Kind(score_prose, Shares(0.15, 0.05))
LOG = Kind(score_log, Shares(0.06, 0.14))
_TELLS: tuple[tuple[Kind, Callable[[Sequence[str]], bool]], ...] = (
    (COMMITS, is_commits),
    (PROSE, is_page),
    (MATCHES, is_matches),
    (LISTING, is_listing),
    (SOURCE, is_source),
    (PROSE, is_prose),
)


def tell_kind(lines: Sequence[str]) -> Kind:
    """The kind of a text; a log if no other is recognised."""
    sample = _sample(lines)
    kind = next((kind for kind, tells in _TELLS if sample and tells(sample)), LOG)
    return LOG if kind in {SOURCE, PROSE} and _is_signalled(sample) else kind


def _sample(lines: Sequence[str]) -> Sequence[str]:
    if len(lines) <= SAMPLE_RUNS * RUN_LINES:
        return [line for line in lines if line.strip()]
    step = (len(lines) - RUN_LINES) // (SAMPLE_RUNS - 1)
    runs = (lines[start : start + RUN_LINES] for start in range(0, step * SAMPLE_RUNS, step))
    return [line for run in runs for line in run if line.strip()]


def _is_signalled(sample: Sequence[str]) -> bool:
    """Whether so many lines report a failure, a warning or a total that the text is a log after all."""
    heads = [line[:400].partition("\n")[0].rstrip() for line in sample]
    telling = (line for line in heads if not line[:1].isspace() and holds_word(line))
    loud = sum(
        line.startswith(STARTS) or (read_signal(line).weight >= 9.0 and not line.endswith(("{", ";", "(", ",")))
        for line in telling
    )
    return loud > MAX_SIGNALLED_SHARE * len(heads)


LARGE_CHARS, LARGE_LINES = 1024 * 1024, 20_000
"""A longer text, or one with more lines, is read window by window. Chosen: tests/attack/test_memory.py measures what
such texts cost in memory."""
WINDOW_CHARS = 256 * 1024  # chosen: bounds the objects of one window
MOST_UNITS, MOST_CHARS = 8192, 512 * 1024
"""Bounds of the units kept, without the two ends; for a large budget, BUDGETS_KEPT times the budget. Chosen: bounds
the memory."""
BUDGETS_KEPT = 2  # chosen: more candidates than can be selected
GAP_CHARS = 400  # Part of a gap's first line that is read to score it. Chosen: as much as signals.py reads of a line.


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


class Scan(msgspec.Struct, frozen=True):
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
    run_chars = RUN_LINES * line_chars
    step = max(len(text) - run_chars, 0) // (SAMPLE_RUNS - 1)
    starts = (text.rfind("\n", 0, at) + 1 if at else 0 for at in range(0, step * (SAMPLE_RUNS - 1) + 1, max(step, 1)))
    runs = (split_units(text[start : start + run_chars], line_chars).texts[:RUN_LINES] for start in starts)
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
