"""Lines by their shape: what stays of them without numbers, paths, identifiers and quoted words.

A line whose shape occurs once among thousands is the news. Where what was taken out hardly varies (a message code that
only three lines have), it is no name but content, and the line itself is the shape.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from rules.salience.units import batch_lines

_DIGITS = b"0123456789"
_NAMED = re.compile(rb"(?<!\S)[^\s/.\"'=_\\`\xe2]*+[/.\"'=_\\`\xe2]\S*+")
"""A word that holds a sign of names: a slash, a dot, a quote (0xE2 begins the curly ones)."""
MIN_GROUP = 8
LINES_A_VALUE = 8
"""A group of lines so large, with so many lines for each different one, is told apart by the lines themselves."""

Shape = bytes | str


@dataclass(frozen=True, slots=True)
class Shapes:
    """`of` is the shape of each line; `counts` how many lines have it."""

    of: Sequence[Shape]
    counts: Counter[Shape]

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
    shapes: list[Shape] = []
    for start, stop in batch_lines(lines):
        joined = "\n".join(lines[start:stop]).encode("utf-8", "surrogatepass")
        shapes += _NAMED.sub(b"", joined.translate(None, _DIGITS)).split(b"\n")
    counts = Counter(shapes)
    values = Counter(dict(zip(lines, shapes, strict=True)).values())
    coded = {
        shape
        for shape, different in values.items()
        if counts[shape] >= MIN_GROUP and counts[shape] >= LINES_A_VALUE * different
    }
    if not coded:
        return Shapes(shapes, counts)
    exact = [line if shape in coded else shape for line, shape in zip(lines, shapes, strict=True)]
    return Shapes(exact, Counter(exact))
