"""Runs of lines that say the same: the first stays, and how many more there were.

Law: a run gives way only to something shorter, and every run that went is declared with its length.
"""

import re
from collections.abc import Iterator
from operator import eq, le

from rules.text.chunks import cut_pieces

MIN_ALIKE_LINES = 8
"""Lines that are not quite equal."""
MIN_LETTERS = 10
"""Beside its time, a line that says something: in shorter ones the time may be the content."""
PIECE_CHARS = 16_384
"""Short lines are many objects: a piece of these stays within a few milliseconds."""
_STAMP = re.compile(
    r"(?:(?<!\d)\d{4}[-/]\d\d[-/]\d\d[T ]"  # ISO 8601
    r"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d "  # syslog
    r"|\b\d\d/[A-Z][a-z]{2}/\d{4}:"  # web servers
    r"|^|(?<=[\[(<]))"
    r"\d\d:\d\d:\d\d(?:[.,]\d++)?+(?:Z\b|[+-]\d\d:?\d\d\b)?+(?!:?\d|:[0-9a-fA-F]{1,4}\b)"
)
"""A time that says when the line was written: at its beginning, behind a date, or in brackets. Any other
time is content, and so are numbers that only look like one: of an address, of a position in a film."""
_DONE = re.compile(r"(?<!\d)(?:(\d++(?:\.\d++)?+) ?%|(\d++)/\d++)")
_SIZE = re.compile(
    r"(?<![\d.,])[\d.,]++ ?(?:[kKMGT]?i?B(?:/s)?\b|it/s|s/it)|\b\d\d?:\d\d\b|[#=>\u2500-\u259f ]++", re.ASCII
)
_RUNNING = re.compile(
    r"\beta\b|[kmgt]?i?b/s\b|\dit/s|\ds/it|[\[|](?=[^\]|]{4})[=#>]++[ .\-]*+[\]|]|(?<![=#])[=#]{2,}+>|[\u2588-\u258f]",
    re.IGNORECASE,
)
"""Beside a percentage, what only something shows that is under way: there sizes and rates may vary, too."""
_NO_PROGRESS = re.compile(r"::|pass|fail|error|warn|exception|test|ok\b|cover|loss|acc", re.IGNORECASE)
_UNLIKE = b"0123456789 \t.,:/%#=>-+|[]()"
_RUN = re.compile(b"\x01{2,}")

Run = tuple[int, int, str]
"""First line, the line behind the last, and what to say of those between."""


def fold_repeats(text: str) -> str:
    """The text with runs of lines that say the same folded into their first (and last) and a count.

    Three or more equal lines; or eight or more lines that are equal but for one timestamp, or lines of one progress,
    equal but for a percentage or n/m that only grows, and, beside a percentage and a bar, a rate or an ETA, for the
    sizes and rates. All other digits are content: lines that differ in a line number, an address, a measure, another
    time or a test's number stay, however many. Blank lines stay. What a reader loses is when exactly, and how fast,
    something went on.
    """
    if "\n" not in text:
        return text
    pieces = list(cut_pieces(text, size=PIECE_CHARS))
    folded = [_fold_piece(piece) for piece in pieces]
    return text if all(map(eq, pieces, folded)) else "".join(folded)


def _fold_piece(piece: str) -> str:
    lines = piece.split("\n")
    shapes = piece.encode("utf-8", "surrogatepass").translate(None, _UNLIKE).split(b"\n")
    alike = bytes(map(eq, shapes, shapes[1:]))
    if b"\x01\x01" not in alike:
        return piece
    folded: list[str] = []
    done = 0
    for candidate in _RUN.finditer(alike):
        for start, stop, said in _find_runs(lines, shapes, candidate.start(), candidate.end() + 1):
            between = lines[start + 1 : stop]
            last = lines[stop - 1]
            equal = last == lines[start]
            short = [_marker(len(between), said)] if equal else [_marker(len(between) - 1, said), last]
            if sum(map(len, short)) + len(short) < sum(map(len, between)) + len(between):
                folded += lines[done : start + 1]
                folded += short
                done = stop
    return "\n".join(folded + lines[done:])


def _marker(count: int, said: str) -> str:
    return f"[trimtab: {count} {said} omitted here]"


def _find_runs(lines: list[str], shapes: list[bytes], start: int, stop: int) -> Iterator[Run]:
    """What may be folded of a span of lines with the same letters."""
    first = lines[start]
    if len(shapes[start]) < MIN_LETTERS or lines[start:stop].count(first) == stop - start:
        yield from _equal_runs(lines[start:stop], start)
    elif _STAMP.search(first):
        alike = [_STAMP.sub("", line, count=1) for line in lines[start:stop]]
        said = "more lines like the one above, at other times,"
        yield from _alike_runs(lines, alike, start, said)
    elif _DONE.search(first) and not _NO_PROGRESS.search(first):
        varying = "%" in first and _RUNNING.search(first)
        steps = _DONE.sub("", "\n".join(lines[start:stop]))
        alike = (_SIZE.sub("", steps) if varying else steps).split("\n")
        yield from _alike_runs(lines, alike, start, "more lines of the same progress")
    else:
        yield from _equal_runs(lines[start:stop], start)


def _equal_runs(lines: list[str], offset: int, said: str = "more lines equal to the one above") -> Iterator[Run]:
    for run in _RUN.finditer(bytes(map(eq, lines, lines[1:]))):
        if lines[run.start()].strip():
            yield offset + run.start(), offset + run.end() + 1, said


def _alike_runs(lines: list[str], alike: list[str], offset: int, said: str) -> Iterator[Run]:
    """Runs of the lines that are equal in `alike`; where that is not enough, the runs of equal ones among them."""
    for start, stop, _ in _equal_runs(alike, offset):
        few = stop - start < MIN_ALIKE_LINES
        if few or lines[start] == lines[stop - 1] or not _only_grows(lines[start:stop]):
            yield from _equal_runs(lines[start:stop], start)
        else:
            yield start, stop, said


def _only_grows(lines: list[str]) -> bool:
    unstamped = "\n".join([_STAMP.sub("", line, count=1) for line in lines])
    steps = [float(percent or done) for percent, done in _DONE.findall(unstamped)]
    return not steps or all(map(le, steps, steps[1:]))
