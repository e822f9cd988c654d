"""Lines by their shape: what stays of them without numbers, paths, identifiers and quoted words.

A line whose shape occurs once among thousands is the news. Where what was taken out hardly varies (a message code that
only three lines have), it is no name but content, and the line itself is the shape.
"""

import re
from collections import Counter
from collections.abc import Sequence

from rules.results.excerpt.lines import batch_lines

_DIGITS = b"0123456789"
_NAMED = re.compile(rb"(?<![^\s,;|])[^\s,;|/.\"'=_\\`\xe2]*+[/.\"'=_\\`\xe2][^\s,;|]*+")
"""A word that holds a sign of names: a slash, a dot, a quote (0xE2 begins the curly ones)."""
MIN_GROUP = 8
LINES_A_VALUE = 8
"""A group of lines so large, with so many lines for each different one, is told apart by the lines themselves."""

COUNTED_AT_ONCE = 8192

Shape = bytes | str


def find_rare(lines: Sequence[str]) -> tuple[list[int], float]:
    """The lines whose shape no other has, and how much that says: from 0, all shapes differ, to 1, all are one."""
    by_line: dict[str, Shape] = {}
    for start, stop in batch_lines(lines):
        new = [line for line in dict.fromkeys(lines[start:stop]) if line not in by_line]
        joined = "\n".join(new).encode("utf-8", "surrogatepass")
        by_line.update(zip(new, _NAMED.sub(b"", joined.translate(None, _DIGITS)).split(b"\n"), strict=bool(new)))
    counts, values = _count([by_line[line] for line in lines]), _count(list(by_line.values()))
    coded = {
        shape for shape, number in counts.items() if number >= MIN_GROUP and number >= LINES_A_VALUE * values[shape]
    }
    shapes = [line if by_line[line] in coded else by_line[line] for line in lines]
    counts = _count(shapes)
    return [index for index, shape in enumerate(shapes) if counts[shape] == 1], 1 - len(counts) / max(len(lines), 1)


def _count(shapes: Sequence[Shape]) -> Counter[Shape]:
    """How often each occurs; some thousands at a time, as each call holds the interpreter."""
    counts: Counter[Shape] = Counter()
    for start in range(0, len(shapes), COUNTED_AT_ONCE):
        counts.update(shapes[start : start + COUNTED_AT_ONCE])
    return counts
