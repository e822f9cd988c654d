"""The lines of a text before and after, for people.

Law: bounded time. A pair that would take long is shown as removed and added.
"""

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

MAX_PAIRS = 50_000
"""Pairs of equal lines that are compared. Chosen: such a diff takes some tenths of a second in the worst case."""

Line = dict[str, str]


def diff_lines(before: str, after: str) -> list[Line]:
    """The lines of both texts: same, removed or added."""
    old, new = before.splitlines(), after.splitlines()
    if not old or not new or not _is_cheap(old, new):
        return [*_mark("removed", old), *_mark("added", new)]
    lines: list[Line] = []
    for kind, old_start, old_stop, new_start, new_stop in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            lines += _mark("same", old[old_start:old_stop])
        else:
            lines += _mark("removed", old[old_start:old_stop])
            lines += _mark("added", new[new_start:new_stop])
    return lines


def _is_cheap(old: list[str], new: list[str]) -> bool:
    counts = Counter(new)
    return sum(counts[line] for line in old) <= MAX_PAIRS


def _mark(kind: str, lines: list[str]) -> Iterator[Line]:
    return ({"kind": kind, "text": line} for line in lines)
