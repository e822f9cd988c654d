"""Reads the numbers in the text of an overflow: the limit, and what was requested.

Law: no I/O, never raises, linear in the length of the text.
"""

import re
from typing import NamedTuple

from trimtab.proxy.wire.overflow.wordings import FIGURES, MEANINGS, NUMBER

MAX_NUMBER = 10**12
"""A larger number is ignored. Chosen: above every limit in tokens or bytes; a timestamp in milliseconds is larger."""
MAX_QUOTIENT = 10_000
"""If one number is more than this many times the other, the smaller one is not taken for the limit. Chosen: beyond it
they measure different things."""
MIN_NUMBER = 256
"""Smaller numbers are not compared. Chosen: they are indexes and versions, and no context window is smaller."""
_COUNTED = re.compile(rf"({NUMBER})(?!\.\d| ?[km]\b) ?tokens?\b", re.IGNORECASE)
_ANY = re.compile(rf"(?<![\w.-])({NUMBER})(?! ?[km]\b|[\w-]|\.\d)", re.IGNORECASE)


class Numbers(NamedTuple):
    """The numbers that a text contains, as in `Overflow`; None for those that it does not contain.

    requested: prompt and completion together if both are given; else the total, or the prompt alone.
    """

    limit: int | None
    requested: int | None
    prompt_tokens: int | None
    completion_tokens: int | None
    excess_tokens: int | None


def read_numbers(text: str) -> Numbers:
    told: dict[str, int] = {}
    for wording in (*MEANINGS, *FIGURES):
        match = wording.pattern.search(text) if wording.pattern.groups else None
        for meaning, digits in match.groupdict().items() if match else ():
            if digits is not None and read_number(digits) < MAX_NUMBER:
                told.setdefault(meaning, read_number(digits))
    limit, prompt = told.get("limit") or None, told.get("prompt")  # a limit of 0 is not a limit
    total, completion, excess = told.get("total"), told.get("completion"), told.get("excess")
    if total is None and prompt is not None:
        total = prompt + (completion or 0)
    elif total is not None and completion is not None and completion < total:
        prompt = total - completion
    if excess is None and (limit is None or limit == total):
        limit, total = _compare(text) or (limit, total)
    return Numbers(limit, total, prompt, completion, excess)


def _compare(text: str) -> tuple[int, int] | None:
    """The smaller of two numbers, as the limit, and the larger one, as what was requested; None if that is unclear.

    The text must have exactly two numbers of tokens, or exactly two numbers at all.
    """
    for pattern in (_COUNTED, _ANY):
        found = {read_number(match[1]) for match in pattern.finditer(text)}
        numbers = sorted(number for number in found if MIN_NUMBER <= number < MAX_NUMBER)
        if len(numbers) == 2 and numbers[1] < MAX_QUOTIENT * numbers[0]:
            return numbers[0], numbers[1]
    return None


def read_number(digits: str) -> int:
    return int(digits.replace(",", "").replace("_", ""))
