"""Lines by their shape: what stays of them without numbers, paths, identifiers and quoted words.

A line whose shape occurs once among thousands is the news. Where what was taken out hardly varies (a message code that
only three lines have), it is no name but content, and the line itself is the shape.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

from rules.results.excerpt.lines import batch_lines

_DIGITS = b"0123456789"
_NAMED = re.compile(rb"(?<![^\s,;|])[^\s,;|/.\"'=_\\`\xe2]*+[/.\"'=_\\`\xe2][^\s,;|]*+")
"""A word that holds a sign of names: a slash, a dot, a quote (0xE2 begins the curly ones)."""
MIN_GROUP = 8
LINES_A_VALUE = 8
"""A group of lines so large, with so many lines for each different one, is told apart by the lines themselves."""

COUNTED_AT_ONCE = 8192

Shape = bytes | str


@dataclass(frozen=True, slots=True)
class Shapes:
    """`of` is the shape of each line; `counts` how many lines have it; `by_line` the shape of each different line."""

    of: Sequence[Shape]
    counts: Counter[Shape]
    by_line: Mapping[str, Shape]

    @property
    def variety(self) -> float:
        """From 0, all lines alike, to 1, all different."""
        return len(self.counts) / max(len(self.of), 1)

    def rarity(self, index: int) -> float:
        """From 0, the shape of all lines, to 1, the shape of this line alone."""
        return self.rarity_of(self.of[index])

    def rarity_of(self, shape: Shape) -> float:
        """The same, by the shape."""
        lines = len(self.of) + 1
        return log(lines / self.counts[shape]) / log(lines)


def read_shapes(lines: Sequence[str]) -> Shapes:
    """The shapes of lines, which have no line breaks."""
    by_line: dict[str, Shape] = {}
    for start, stop in batch_lines(lines):
        new = [line for line in dict.fromkeys(lines[start:stop]) if line not in by_line]
        joined = "\n".join(new).encode("utf-8", "surrogatepass")
        by_line.update(zip(new, _NAMED.sub(b"", joined.translate(None, _DIGITS)).split(b"\n"), strict=bool(new)))
    of = [by_line[line] for line in lines]
    counts, values = _count(of), _count(list(by_line.values()))
    coded = {
        shape for shape, number in counts.items() if number >= MIN_GROUP and number >= LINES_A_VALUE * values[shape]
    }
    if not coded:
        return Shapes(of, counts, by_line)
    by_line = {line: line if shape in coded else shape for line, shape in by_line.items()}
    of = [by_line[line] for line in lines]
    return Shapes(of, _count(of), by_line)


def _count(shapes: Sequence[Shape]) -> Counter[Shape]:
    """How often each occurs; some thousands at a time, as each call holds the interpreter."""
    counts: Counter[Shape] = Counter()
    for start in range(0, len(shapes), COUNTED_AT_ONCE):
        counts.update(shapes[start : start + COUNTED_AT_ONCE])
    return counts
