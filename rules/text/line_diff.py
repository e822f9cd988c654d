"""The differing lines of two nearly equal texts, as a unified diff without context lines.

Law: exact for any text, as lines end only at line feeds and each hunk's header counts the lines that follow it. Takes
n log n time at worst. The diff is not always the shortest one.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


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
