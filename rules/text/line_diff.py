"""Two texts that are nearly equal: the lines that differ, in the form of a unified diff without context.

Law: exact, whatever stands in the texts: lines are what stands between line feeds, and the counts in a hunk's header
say how many follow. n log n at the worst; not always the shortest diff.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines [old_start, old_stop) of the old text give way to lines [new_start, new_stop) of the new one."""

    old_start: int
    old_stop: int
    new_start: int
    new_stop: int


def write_diff(old: str, new: str) -> str:
    """The hunks that make `new` of `old`, oldest line first; the empty text where they are equal."""
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
    """First line and number of lines, as `diff` writes them: from one on; of none, the line that they follow."""
    return f"{start + (stop > start)},{stop - start}"


def find_hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[Hunk]:
    """What differs between lines that both texts have exactly once and in the same order (a patience diff, one level).

    What is equal around such a line, and at both ends, is no part of a hunk.
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
    """The longest run of lines, unique in both, that stand in the same order: their places, first to last."""
    places = _find_unique(old, start, stops[0])
    pairs = [(places[line], right) for line, right in _find_unique(new, start, stops[1]).items() if line in places]
    ends: list[int] = []  # of the best run of each length, where in the old text it ends,
    last: list[int] = []  # and by which pair
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
    """Where each line stands that stands there once."""
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
