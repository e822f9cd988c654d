"""Sketches of texts: they tell cheaply whether two texts have many lines in common.

Law: the same for the same text on every machine.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from heapq import nsmallest
from zlib import crc32

MIN_LINE_CHARS = 16
"""On average. A text of shorter lines is not compared line by line: the time goes by lines, and must go by bytes."""
SKETCH_LINES = 8


@dataclass(frozen=True, slots=True)
class Sketch:
    """The least checksums of a text's lines; none if the lines are too short. `digest` names the text."""

    digest: bytes
    lines: tuple[int, ...]


def sketch_text(text: str) -> Sketch:
    """The sketch of a text."""
    encoded = text.encode("utf-8", "surrogatepass")
    lines: Iterable[int] = ()
    if 0 < encoded.count(b"\n") * MIN_LINE_CHARS <= len(encoded):
        lines = nsmallest(SKETCH_LINES, set(map(crc32, filter(None, encoded.split(b"\n")))))
    return Sketch(sha256(encoded).digest(), tuple(lines))
