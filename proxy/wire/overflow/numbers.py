"""The numbers in an overflow's text: the limit, and what was requested.

Law: no I/O, never raises, linear: no repetition within a repetition, and every gap has a bound.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

MAX_NUMBER = 10**12
MAX_QUOTIENT = 10_000
"""Of two numbers where nothing but their order says which is the limit."""

_N = r"(\d{1,20}+(?:[,_]\d{3}(?!\d)){0,6}+)(?!\.\d| ?[km]\b)"
"""A whole number: 300K and 1.5 are none."""
_LINK = r"(?: (?:is|of|only|at|to|be|currently|allowed|limited|set)){0,4}\s{0,2}[:=(\[]?\s{0,2}" + _N


def _compile(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


_LIMITS = _compile(
    r"n_ctx\W{1,4}" + _N,
    r"\+ {0,3}\d[\d,]{0,20} {0,3}> {0,3}" + _N,
    r"tokens? {0,3}> {0,3}" + _N,
    r"while (?:the )?limit is " + _N,
    _N + r" (?:tokens )?(?:is |are )?allowed",
    r"less than " + _N + r" tokens",
    r"max_seq_len " + r"\(?" + _N,
    r"\(0, ?" + _N,
    r"(?:only supports|supports a context of) " + _N,
    r"最大上下文长度(?:\u4e3a|\u662f|:|\uff1a)? ?" + _N,
    r"cannot exceed " + _N,
    r"must be <= ?" + _N,
    r"range of input length should be \[\d{1,20}, ?" + _N,
    r"model with " + _N + r" maximum context",
    r"supports (?:at most|up to|a maximum of) " + _N,
    r"string with maximum length " + _N,
    r"size \d[\d,]{0,20} exceeds (?:the )?limit (?:of )?" + _N,
    r"\blimit:? " + _N + r", ?requested",
    r"(?:context|model)[ _-](?:length|size|window|limit|len)" + _LINK,
    r"max(?:imum)?(?: allowed)?[ _](?:prompt|input|sequence|model)[ _](?:length|size|window|len)" + _LINK,
    r"(?:length|token|tokens|configured) limit" + _LINK,
    r"max(?:imum)?(?: number of)?(?: allowed)?(?: input)? tokens" + _LINK,
    r"(?:exceed(?:s|ed)?|over|above|than)(?: the| a| its)?(?: model'?s?)?(?: max(?:imum)?)?(?: allowed)?"
    r"(?: limit)?(?: of)? " + _N,
)
_TOTALS = _compile(
    r"total of (?:at least )?" + _N + r" tokens",
    r"you requested (?:about )?" + _N + r" tokens",
    r"\brequested:? " + _N + r"(?! output| completion)",
    r"requested tokens:? \(?" + _N,
    _N + r" tokens requested",
)
_PROMPTS = _compile(
    r"n_keep\W{1,4}" + _N,
    r"given: " + _N,
    r"limit: " + _N + r" {0,3}\+",
    r"resulted in (?:at least )?(?:about )?" + _N,
    r"(?:passed|contains?|has|have|had|received|got) (?:at least )?(?:about )?" + _N + r" (?:input |prompt )?tokens",
    r"(?:prompt|input) is " + _N + r" tokens",
    r"prompt_tokens \(" + _N,
    r"(?:prompt|input|request|messages?)(?: tokens| length| size)?:? \((?:total )?(?:length )?" + _N,
    r"(?:input|prompt|current|sequence) (?:token )?(?:length|count|size|tokens) (?:is |of )?\(?" + _N,
    r"(?:too long|too large): " + _N,
    r"size " + _N + r" exceeds",
    r"received " + _N,
    _N + r" tokens? {0,3}>",
)
_COMPLETIONS = _compile(
    _N + r" (?:in|for) (?:the |your )?(?:completion|output)",
    _N + r" tokens for the completion",
    r"requested " + _N + r" (?:output|completion) tokens",
    r"and " + _N + r" `max_new_tokens`",
    r"tokens'? is too large: " + _N,
    r"\+ {0,3}" + _N + r" {0,3}>",
)
_EXCESS = _compile(
    r"(?:exceed(?:s|ed)?|over|too long)\b[^.\d]{0,60}\bby " + _N + r" tokens",
    r"must be at least \d{1,3}, got -" + _N,  # vLLM: what the prompt leaves to the completion
)
_COUNTED = re.compile(_N + r" ?tokens?\b", re.IGNORECASE)
_ANY = re.compile(r"(?<![\w.-])" + _N + r"(?![\w-]|\.\d)")
MIN_NUMBER = 256
"""Smaller numbers are statuses, versions and indexes."""
_LEAST = re.compile(r"at least \d", re.IGNORECASE)


class Numbers(NamedTuple):
    """What a text says, None for what it does not.

    `requested` is prompt and completion together where both are told, else the one sum or the prompt that is; `prompt`
    is the prompt alone.
    `is_least`: the server stopped counting there. `excess` is by how much the prompt was too long.
    """

    limit: int | None
    requested: int | None
    prompt: int | None
    completion: int | None
    excess: int | None
    is_least: bool


def read_numbers(text: str) -> Numbers:
    """The numbers in the text of an overflow."""
    limit, prompt = _find(_LIMITS, text) or None, _find(_PROMPTS, text)  # a window of nothing is none
    total, completion = _find(_TOTALS, text), _find(_COMPLETIONS, text)
    if total is None and prompt is not None:
        total = prompt + (completion or 0)
    elif total is not None and completion is not None and completion < total:
        prompt = total - completion
    excess = _find(_EXCESS, text)
    if excess is None and (limit is None or limit == total):
        compared = _compare(text)
        limit, total = compared if compared[0] is not None else (limit, total)
    is_least = _LEAST.search(text) is not None
    return Numbers(limit, total, prompt, completion, excess, is_least)


def _compare(text: str) -> tuple[int | None, int | None]:
    """Of two numbers, of tokens or otherwise the only ones, the smaller is the limit."""
    for pattern in (_COUNTED, _ANY):
        found = {read_number(match[1]) for match in pattern.finditer(text)}
        numbers = sorted(number for number in found if MIN_NUMBER <= number < MAX_NUMBER)
        if len(numbers) == 2 and numbers[1] < MAX_QUOTIENT * numbers[0]:
            return numbers[0], numbers[1]
    return None, None


def _find(patterns: Sequence[re.Pattern[str]], text: str) -> int | None:
    """The number in the first pattern that fits."""
    for pattern in patterns:
        match = pattern.search(text)
        number = read_number(match[1]) if match else MAX_NUMBER
        if number < MAX_NUMBER:
            return number
    return None


def read_number(digits: str) -> int:
    """A number as it is written, with separators of thousands."""
    return int(digits.replace(",", "").replace("_", ""))
