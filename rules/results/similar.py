"""Earlier results that are like a new one: sketches (min-hashing), an index of them, and the diff of two texts.

Laws: the same text has the same sketch on every machine. The index finds results and decides nothing about them; the
time of a search does not grow with their number. A diff is a unified diff without context lines, exact for any text, as
lines end only at line feeds and each hunk's header counts the lines that follow it. It takes n log n time at worst, and
is not always the shortest one.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import nsmallest
from zlib import crc32

from trimtab.rules.conversation import Message, ToolCall

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
    encoded = text.encode("utf-8", "surrogatepass")
    lines: Iterable[int] = ()
    if 0 < encoded.count(b"\n") * MIN_LINE_CHARS <= len(encoded):
        lines = nsmallest(SKETCH_LINES, set(map(crc32, filter(None, encoded.split(b"\n")))))
    return Sketch(sha256(encoded).digest(), tuple(lines))


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines [old_start, old_stop) of the old text are replaced by lines [new_start, new_stop) of the new one."""

    old_start: int
    old_stop: int
    new_start: int
    new_stop: int


def write_diff(old: str, new: str) -> str:
    """The hunks that turn `old` into `new`, from top to bottom; an empty text if the two are equal."""
    before, after = old.split("\n"), new.split("\n")
    written: list[str] = []
    for hunk in find_hunks(before, after):
        left = _span(hunk.old_start, hunk.old_stop)
        right = _span(hunk.new_start, hunk.new_stop)
        written.append(f"@@ -{left} +{right} @@")
        written.extend("-" + line for line in before[hunk.old_start : hunk.old_stop])
        written.extend("+" + line for line in after[hunk.new_start : hunk.new_stop])
    return "\n".join(written)


def _span(start: int, stop: int) -> str:
    """A range as `diff` writes it: the first line, from 1 on, and the number of lines.

    An empty range names the line before it.
    """
    return f"{start + (stop > start)},{stop - start}"


def find_hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[Hunk]:
    """The hunks between two lists of lines, in order: a patience diff of one level.

    Anchors are lines that occur exactly once in both lists, in the same order. Equal lines at the start or at the end
    of the part between two anchors do not belong to a hunk.
    """
    shorter = min(len(old), len(new))
    head = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    tail = next((index for index in range(shorter - head) if old[-1 - index] != new[-1 - index]), shorter - head)
    stops = (len(old) - tail, len(new) - tail)
    left, right = head, head
    for anchor in (*_find_anchors(old, new, head, stops), stops):
        while left < anchor[0] and right < anchor[1] and old[left] == new[right]:
            left, right = left + 1, right + 1
        left_stop, right_stop = anchor
        while left_stop > left and right_stop > right and old[left_stop - 1] == new[right_stop - 1]:
            left_stop, right_stop = left_stop - 1, right_stop - 1
        if left < left_stop or right < right_stop:
            yield Hunk(left, left_stop, right, right_stop)
        left, right = anchor


def _find_anchors(old: Sequence[str], new: Sequence[str], start: int, stops: tuple[int, int]) -> list[tuple[int, int]]:
    """The anchors (old index, new index), in order: the longest common subsequence of lines that are unique in both."""
    places = _find_unique(old, start, stops[0])
    pairs = [(places[line], right) for line, right in _find_unique(new, start, stops[1]).items() if line in places]
    # Patience sorting: for each length, the run that ends earliest in the old text: its end there, and its last pair.
    ends: list[int] = []
    last: list[int] = []
    previous: list[int] = []
    for number, (left, _) in enumerate(pairs):
        length = bisect_left(ends, left)
        previous.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [left]
        last[length : length + 1] = [number]
    anchors: list[tuple[int, int]] = []
    at = last[-1] if last else -1
    while at >= 0:
        anchors.append(pairs[at])
        at = previous[at]
    return anchors[::-1]


def _find_unique(lines: Sequence[str], start: int, stop: int) -> dict[str, int]:
    """The index of each line that occurs exactly once in lines[start:stop]."""
    places: dict[str, int] = {}
    repeated: set[str] = set()
    for index in range(start, stop):
        line = lines[index]
        if line in places:
            repeated.add(line)
        places[line] = index
    for line in repeated:
        del places[line]
    return places


MIN_SHARED = 0.25
"""Share of a sketch's lines that two results must share. Chosen: two of eight lines. In a simulation with texts of 100
lines, 95 % of the pairs with 50 common lines share that many. A diff of less similar texts would save too little."""


@dataclass(slots=True, eq=False)
class Compared:
    """A result, the call that it answers, and its sketch.

    number: its rank among all results that are compared, from 1 on.
    sketch: None if the result takes no part in diffs, or if an equal one was added before.
    """

    number: int
    message: Message
    call: ToolCall | None
    sketch: Sketch | None


class Index:
    """The results added so far."""

    def __init__(self) -> None:
        self._equal: dict[tuple[str, ...], Compared] = {}
        self._by_line: dict[int, Compared] = {}  # the newest result with the line in its sketch

    def add(self, result: Compared) -> None:
        self._equal.setdefault(result.message.texts, result)
        if result.sketch is not None:
            self._by_line.update(dict.fromkeys(result.sketch.lines, result))

    def find_equal(self, message: Message) -> Compared | None:
        """The first result with the same texts."""
        return self._equal.get(message.texts)

    def find_near(self, sketch: Sketch | None) -> Compared | None:
        """The result that shares most lines with a sketch; None if none shares MIN_SHARED of them."""
        lines = () if sketch is None else sketch.lines
        found = [other for line in lines if (other := self._by_line.get(line)) is not None]
        if not found or len(found) < len(lines) * MIN_SHARED:
            return None
        most, shared = Counter(found).most_common(1)[0]
        return most if shared >= len(lines) * MIN_SHARED else None
