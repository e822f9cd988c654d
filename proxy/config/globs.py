"""What a glob can match, by the rules of `fnmatch`."""

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import takewhile

UNCLOSED = "[unclosed"
"""The unit for a `[` without its `]`. `fnmatch` would match it literally, which is hardly meant."""
NEVER = "(?!)"
"""What `fnmatch.translate` writes for a class without a character, and for nothing else."""
_WILD = re.compile(r"\[!?.[^]]*\]|[*?\[]")


@lru_cache(maxsize=1024)
def split_glob(glob: str) -> tuple[str, ...]:
    """The units of a glob: `*`, `?`, a class with its brackets, UNCLOSED, or a single character as a class."""
    units: list[str] = []
    at = 0
    while at < len(glob):
        # A class has at least one character, so a ] right after its beginning is a member, not its end.
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
    """Whether the earlier glob surely matches everything that the later one matches. May miss some such pairs."""
    if not all(text in later for text in _WILD.split(earlier)):
        return False  # a cheap filter for most pairs of a long list
    units = split_glob(earlier)
    reached = _skip_stars({0}, units)
    for unit in split_glob(later):
        stays = {at for at in reached if at < len(units) and units[at] == "*"}
        moves = {at + 1 for at in reached if at < len(units) and _takes(units[at], unit)}
        reached = _skip_stars(stays | moves, units)
    return len(units) in reached


def _skip_stars(reached: set[int], units: tuple[str, ...]) -> set[int]:
    return reached.union(
        *({at + 1 + skipped for skipped, _ in enumerate(takewhile("*".__eq__, units[at:]))} for at in reached)
    )


def _takes(earlier: str, later: str) -> bool:
    if earlier == "*" or later == "*":
        return False
    is_character = len(later) == 3 and later != "[!]"
    return earlier in {"?", later} or (is_character and fnmatchcase(later[1], earlier))
