"""Where a text may be cut without taking a character apart as readers see it.

Law: a boundary is one between extended grapheme clusters (Unicode Standard Annex 29), as `regex` knows them. Only a
small neighbourhood is looked at, however long the text is.
"""

import regex

LOOK_BEHIND_CHARS = 1024
"""What decides about a boundary and lies further before it is not seen: a longer row of flags is paired from there."""
_CLUSTER = regex.compile(r"\X")
"""Matched within a cluster, it ends where the cluster ends: it looks at what is before the place, too."""


def floor_boundary(text: str, at: int, lowest: int = 0) -> int:
    """The last boundary at or before `at`; `at` itself if there is none after `lowest` (a hostile run of marks)."""
    first = max(at - LOOK_BEHIND_CHARS, 0)
    near = text[first : at + 1]
    places = range(at, max(lowest, first - 1), -1)
    return next((place for place in places if _is_boundary(near, place - first)), at)


def ceil_boundary(text: str, at: int, highest: int) -> int:
    """The first boundary at or after `at`; `at` itself if there is none before `highest`."""
    first = max(at - LOOK_BEHIND_CHARS, 0)
    near = text[first:highest]
    return next((place for place in range(at, highest) if _is_boundary(near, place - first)), at)


def _is_boundary(near: str, at: int) -> bool:
    found = _CLUSTER.match(near, at - 1, at + 1) if 0 < at < len(near) else None
    return found is None or found.end() == at
