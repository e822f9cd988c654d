"""Where a text may be cut without taking a character apart as readers see it.

Law: a boundary lies never behind the place asked for, and never within a base character and its marks. Source of the
rules: Unicode Standard Annex 29, extended grapheme clusters, without those for Indic conjuncts and prepended marks.
"""

import unicodedata

_JOINER = "\u200d"
_MARKS = frozenset({"Mn", "Me", "Mc"})
_REGIONAL_FIRST, _REGIONAL_LAST = "\U0001f1e6", "\U0001f1ff"
_MODIFIER_FIRST, _MODIFIER_LAST = "\U0001f3fb", "\U0001f3ff"
_VOWEL_JAMO_FIRST, _TRAILING_JAMO_LAST = "\u1160", "\u11ff"
_ASCII_LAST = "\x7f"
_FIRST_MARK = "\u0300"


def floor_boundary(text: str, at: int, lowest: int = 0) -> int:
    """The last boundary at or before `at`; `at` itself where none lies behind `lowest` (a hostile run of marks)."""
    if at <= lowest or at >= len(text):
        return at
    place = at
    while place > lowest and not is_boundary(text, place):
        place -= 1
    return place if place > lowest else at


def ceil_boundary(text: str, at: int, highest: int) -> int:
    """The first boundary at or behind `at`; `at` itself where none lies before `highest`."""
    if at <= 0 or at >= highest:
        return at
    place = at
    while place < highest and not is_boundary(text, place):
        place += 1
    return place if place < highest else at


def is_boundary(text: str, at: int) -> bool:
    """Whether a reader sees two characters, one before `at` and one behind it."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if after <= _ASCII_LAST:
        return not (before == "\r" and after == "\n")
    if after < _FIRST_MARK:
        return True
    if _JOINER in {before, after} or _extends(after):
        return False
    return not (_is_regional(after) and _count_regional(text, at) % 2)


def _extends(char: str) -> bool:
    return (
        unicodedata.category(char) in _MARKS
        or _MODIFIER_FIRST <= char <= _MODIFIER_LAST
        or _VOWEL_JAMO_FIRST <= char <= _TRAILING_JAMO_LAST
    )


def _is_regional(char: str) -> bool:
    return _REGIONAL_FIRST <= char <= _REGIONAL_LAST


def _count_regional(text: str, at: int) -> int:
    """Regional indicators right before `at`: two make a flag. No more than 64 are looked at."""
    count = 0
    while count < min(at, 64) and _is_regional(text[at - 1 - count]):
        count += 1
    return count
