"""Lines by their shape: what stays of them without numbers, paths, identifiers and quoted words.

A line whose shape occurs once among thousands is the news. Where what was taken out hardly varies (a message code that
only three lines have), it is no name but content, and the line itself is the shape.
"""

import re
from collections import Counter
from collections.abc import Sequence

_DIGITS = b"0123456789"
_NAMED = re.compile(rb"(?<![^\s,;|])[^\s,;|/.\"'=_\\`\xe2]*+[/.\"'=_\\`\xe2][^\s,;|]*+")
"""A word that holds a sign of names: a slash, a dot, a quote (0xE2 begins the curly ones)."""
MIN_GROUP = 8
LINES_A_VALUE = 8
"""A group of lines so large, with so many lines for each different one, is told apart by the lines themselves."""

Shape = bytes | str


def find_rare(lines: Sequence[str]) -> tuple[list[int], float]:
    """The lines whose shape no other has, and how much that says: from 0, all shapes differ, to 1, all are one."""
    by_line: dict[str, Shape] = {line: _read_shape(line) for line in dict.fromkeys(lines)}
    counts, values = Counter(map(by_line.__getitem__, lines)), Counter(by_line.values())
    coded = {
        shape for shape, number in counts.items() if number >= MIN_GROUP and number >= LINES_A_VALUE * values[shape]
    }
    told_apart = {line: line if shape in coded else shape for line, shape in by_line.items()}
    shapes = list(map(told_apart.__getitem__, lines))
    counts = Counter(shapes)
    told = 1 - len(counts) / max(len(lines), 1)
    if 1 not in counts.values():
        return [], told
    return [index for index, shape in enumerate(shapes) if counts[shape] == 1], told


def _read_shape(line: str) -> bytes:
    return _NAMED.sub(b"", line.encode("utf-8", "surrogatepass").translate(None, _DIGITS))
