"""Where a text may be cut without taking a character apart as readers see it.

Law: a boundary lies never behind the place asked for, and never within a base character and its marks. Source of the
rules: Unicode Standard Annex 29, extended grapheme clusters, without prepended marks. Where in
doubt, no boundary: behind any joiner, and behind any sign that joins consonants.
"""

import re
import unicodedata

_JOINER = "\u200d"
_MARKS = frozenset({"Mn", "Me", "Mc"})
_REGIONAL_FIRST, _REGIONAL_LAST = "\U0001f1e6", "\U0001f1ff"
_REGIONALS = "".join(map(chr, range(ord(_REGIONAL_FIRST), ord(_REGIONAL_LAST) + 1)))
_MODIFIER_FIRST, _MODIFIER_LAST = "\U0001f3fb", "\U0001f3ff"
_VOWEL_JAMO_FIRST, _TRAILING_JAMO_LAST = "\u1160", "\u11ff"
_LATER_JAMO_FIRST, _LATER_JAMO_LAST = "\ud7b0", "\ud7fb"
_LEADING_JAMO = re.compile("[\u1100-\u115f\ua960-\ua97c]{2}|[\u1100-\u115f\ua960-\ua97c][\uac00-\ud7a3]")
_TAG_FIRST, _TAG_LAST = "\U000e0020", "\U000e007f"
_OTHER_MARKS = frozenset("\u200c\u0e33\u0eb3\uff9e\uff9f")
"""Marks by their use, though not by their category: the non-joiner, Thai and Lao vowels, half-width voicing."""
_VIRAMA_CLASS = 9
"""The combining class of signs that join the consonant before with the one behind."""
_REGIONALS_LOOKED_AT = 1024
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
    if after < _FIRST_MARK or before < " ":
        return True
    if _extends(after) or _joins(before, after):
        return False
    return not (_is_regional(after) and _count_regional(text, at) % 2)


def _extends(char: str) -> bool:
    return (
        unicodedata.category(char) in _MARKS
        or _MODIFIER_FIRST <= char <= _MODIFIER_LAST
        or _VOWEL_JAMO_FIRST <= char <= _TRAILING_JAMO_LAST
        or _LATER_JAMO_FIRST <= char <= _LATER_JAMO_LAST
        or _TAG_FIRST <= char <= _TAG_LAST
        or char in _OTHER_MARKS
    )


def _joins(before: str, after: str) -> bool:
    return (
        _JOINER in {before, after}
        or unicodedata.combining(before) == _VIRAMA_CLASS
        or _LEADING_JAMO.fullmatch(before + after) is not None
    )


def _is_regional(char: str) -> bool:
    return _REGIONAL_FIRST <= char <= _REGIONAL_LAST


def _count_regional(text: str, at: int) -> int:
    """Regional indicators right before `at`, of a bounded number of characters: two make a flag."""
    before = text[max(0, at - _REGIONALS_LOOKED_AT) : at]
    return len(before) - len(before.rstrip(_REGIONALS))
