"""Find places at which a text can be cut without splitting a character as readers see it.

Law: a boundary is a boundary between extended grapheme clusters (Unicode Standard Annex 29), as `regex` implements
them. Only a small part of the text around the place is read, so the time does not depend on the text's length.
"""

import regex

LOOK_BEHIND_CHARS = 1024
"""Characters read before a place. Chosen: a boundary rarely depends on more. In a longer row of flag emoji, the letters
are paired from here on, so a flag may be split."""
_CLUSTER = regex.compile(r"\X")
"""`regex` also looks at the text before the start position. So a match that starts inside a cluster ends where that
cluster ends; `_is_boundary` relies on this."""


def floor_boundary(text: str, at: int, lowest: int = 0) -> int:
    """The last boundary in (lowest, at]; `at` itself if there is none, as in a hostile run of combining marks.

    So a caller that goes on from `lowest` always advances.
    """
    first = max(at - LOOK_BEHIND_CHARS, 0)
    near = text[first : at + 1]
    places = range(at, max(lowest, first - 1), -1)
    return next((place for place in places if _is_boundary(near, place - first)), at)


def ceil_boundary(text: str, at: int, highest: int) -> int:
    """The first boundary in [at, highest); `at` itself if there is none."""
    first = max(at - LOOK_BEHIND_CHARS, 0)
    near = text[first:highest]
    return next((place for place in range(at, highest) if _is_boundary(near, place - first)), at)


def _is_boundary(near: str, at: int) -> bool:
    found = _CLUSTER.match(near, at - 1, at + 1) if 0 < at < len(near) else None
    return found is None or found.end() == at
