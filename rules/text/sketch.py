"""Sketches of texts. Comparing two sketches shows cheaply whether the texts share many lines (min-hashing).

Law: the same text has the same sketch on every machine.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from heapq import nsmallest
from zlib import crc32

MIN_LINE_CHARS = 16
"""If a text's lines are shorter on average, its sketch has no lines. Chosen: the time to compare texts grows with the
number of lines, and this bounds it by the number of bytes."""
SKETCH_LINES = 8
"""Checksums in a sketch. Chosen: few, because each one is an entry in a table (results/similar.py)."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """`lines` are the SKETCH_LINES smallest checksums of the text's lines, none if the lines are too short on average.

    `digest` is the SHA-256 of the text.
    """

    digest: bytes
    lines: tuple[int, ...]


def sketch_text(text: str) -> Sketch:
    """Return the sketch of a text."""
    encoded = text.encode("utf-8", "surrogatepass")
    lines: Iterable[int] = ()
    if 0 < encoded.count(b"\n") * MIN_LINE_CHARS <= len(encoded):
        lines = nsmallest(SKETCH_LINES, set(map(crc32, filter(None, encoded.split(b"\n")))))
    return Sketch(sha256(encoded).digest(), tuple(lines))
