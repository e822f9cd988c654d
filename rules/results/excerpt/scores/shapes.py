"""Lines by their shape: what is left of a line without numbers, paths, identifiers and quoted words.

A line whose shape occurs once among thousands matters. If the parts that were taken out hardly vary within a shape (an
error code, for example), they are content and not names; then the line itself is the shape.
"""

import re
from collections import Counter
from collections.abc import Sequence

_DIGITS = b"0123456789"
_NAMED = re.compile(rb"(?<![^\s,;|])[^\s,;|/.\"'=_\\`\xe2]*+[/.\"'=_\\`\xe2][^\s,;|]*+")
"""A word that contains a sign of names, such as a slash, a dot or a quote. 0xE2 is the first byte of curly quotes."""
# If a shape has at least 8 lines, and at least 8 for each distinct line, each distinct line counts as a shape. Chosen:
# fewer lines do not show that the parts taken out hardly vary.
MIN_GROUP = 8
LINES_A_VALUE = 8

Shape = bytes | str


def find_rare(lines: Sequence[str]) -> tuple[list[int], float]:
    """Find the lines with a unique shape.

    Returns their indexes, and how much that says: 0 if all lines have different shapes, nearly 1 if nearly all have the
    same.
    """
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
