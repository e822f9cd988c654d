"""What a glob can match at all, as `fnmatch` reads it."""

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import takewhile

UNCLOSED = "[unclosed"
"""In the place of a bracket that nothing closes: `fnmatch` would take it for itself."""
NEVER = "(?!)"
"""What `fnmatch.translate` makes of a class without a character, and of nothing else."""
_WILD = re.compile(r"\[!?.[^]]*\]|[*?\[]")


@lru_cache(maxsize=1024)
def split_glob(glob: str) -> tuple[str, ...]:
    """The units of a glob: `*`, `?`, a class with its brackets, UNCLOSED, or a character as a class of its own."""
    units: list[str] = []
    at = 0
    while at < len(glob):
        # A class holds one character at least: a ] right behind its beginning is that one.
        end = glob.find("]", at + 3 if glob.startswith("[!", at) else at + 2) if glob[at] == "[" else at
        if end < 0:
            units.append(UNCLOSED)
        elif end > at:
            units.append(glob[at : end + 1])
        else:
            units.append(glob[at] if glob[at] in "*?" else f"[{glob[at]}]")
        at = max(end, at) + 1
    return tuple(units)


def covers(earlier: str, later: str) -> bool:
    """Whether the earlier of two globs surely matches whatever the later one does; not every such case is seen."""
    if not all(text in later for text in _WILD.split(earlier)):
        return False  # most pairs of a long list
    units = split_glob(earlier)
    reached = _skip_stars({0}, units)
    for unit in split_glob(later):
        stays = {at for at in reached if at < len(units) and units[at] == "*"}
        moves = {at + 1 for at in reached if at < len(units) and _takes(units[at], unit)}
        reached = _skip_stars(stays | moves, units)
    return len(units) in reached


def _skip_stars(reached: set[int], units: tuple[str, ...]) -> set[int]:
    """What is reached, and what is behind stars that match nothing."""
    return reached.union(
        *({at + 1 + skipped for skipped, _ in enumerate(takewhile("*".__eq__, units[at:]))} for at in reached)
    )


def _takes(earlier: str, later: str) -> bool:
    """Whether a unit for one character matches all that another unit does."""
    if earlier == "*" or later == "*":
        return False
    is_character = len(later) == 3 and later != "[!]"
    return earlier in {"?", later} or (is_character and fnmatchcase(later[1], earlier))
