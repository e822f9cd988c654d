"""Whether a refusal only repeats what its own request says.

Law: pure, total, linear in the length of the body. What cannot be read as text counts as quoted. Texts are compared by
their letters and digits alone, so that no escaping, spacing or punctuation that a server adds or drops hides a quote.
"""

import html
import re
import sys
import unicodedata
from collections.abc import Iterator
from enum import IntEnum
from urllib.parse import unquote

from proxy.wire.overflow.classify import Overflow
from proxy.wire.overflow.numbers import read_number
from proxy.wire.overflow.wordings import MEANINGS, NUMBER, Kind

WORD_CHARS = 12
"""Letters and digits before a number: enough to tell a server's own words from a client's."""
PIECE_CHARS = 256 * 1024
"""A long body is read in pieces, so that no step holds the interpreter for long."""
OVERLAP_CHARS = 4096
"""Of two pieces: more than any words that are looked for, however they are escaped."""

_ESCAPE = re.compile(
    r"\\+(?:u(?P<code>[0-9a-fA-F]{4})|U00(?P<long>[0-9a-fA-F]{6})|x(?P<byte>[0-9a-fA-F]{2})|[nrtbfav0\"'/\\]|(?=\W|$))"
)
"""As JSON, Python, Go and JavaScript write it, once or again within another string."""
_NO_WORD = re.compile(r"[\W_]+")
_DIGITS = re.compile(NUMBER)
_RUN = re.compile(r"\d+")


class Quoted(IntEnum):
    """How much of what a refusal tells stands in its request."""

    NOTHING = 0
    NUMBER = 1
    """A number that is used stands there by itself: what it teaches is a guess."""
    WORDS = 2
    """The words that tell stand there, or nobody can say: it teaches nothing."""


def find_quotes(overflow: Overflow, body: bytes) -> Quoted:
    """How much of what a refusal tells its own request says, however either of them writes it."""
    try:
        text = body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return Quoted.WORDS
    words = {needle for rendering in _render(overflow.text) for needle in _find_words(overflow, rendering)}
    numbers = _find_numbers(overflow)
    found = Quoted.NOTHING
    for piece in _cut(text):
        plain = _unescape(piece)
        letters = _letters(plain)
        if any(needle in letters for needle in words):
            return Quoted.WORDS
        if numbers and found is Quoted.NOTHING and _holds_number(plain, numbers, overflow.text):
            found = Quoted.NUMBER
    return found


def _find_words(overflow: Overflow, text: str) -> Iterator[str]:
    """The letters and digits of what makes a text an overflow: each number used with what stands before it."""
    used = set(_find_numbers(overflow))
    is_told = False
    for match in _DIGITS.finditer(text):
        if read_number(match[0]) in used:
            before = _letters(text[: match.start()])[-WORD_CHARS:]
            is_told = True
            if before:
                yield before + _letters(match[0])
    if not is_told:
        for wording in MEANINGS:
            found = wording.pattern.search(text) if wording.kind is Kind.PROMPT else None
            if found is not None and _letters(found[0]):
                yield _letters(found[0])


def _find_numbers(overflow: Overflow) -> list[int]:
    told = (overflow.limit, overflow.requested, overflow.prompt_tokens, overflow.excess_tokens)
    return [number for number in told if number is not None]


def _holds_number(plain: str, numbers: list[int], refusal: str) -> bool:
    """Whether one of the numbers stands in a text by itself; at the refusal's very end it may be one that was cut."""
    runs = {
        int(unicodedata.normalize("NFKC", run)[:20]) for run in _RUN.findall(plain.replace(",", "").replace("_", ""))
    }
    if not runs.isdisjoint(numbers):
        return True
    last = _RUN.search(refusal.rstrip(" .…'\"")[::-1])
    cut = last[0][::-1] if last is not None and last.start() == 0 else ""
    return bool(cut) and int(cut) in numbers and any(str(run).startswith(cut) for run in runs)


def _render(text: str) -> set[str]:
    """A refusal as it is, and without what a server may have added to put it into HTML or an address."""
    plain = _unescape(text)
    return {plain, _unescape(html.unescape(text)), _unescape(unquote(text))}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    # Two escapes may make one character, a digit of another alphabet say.
    return _ESCAPE.sub(_read_escape, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_escape(escape: re.Match[str]) -> str:
    code = escape["code"] or escape["long"] or escape["byte"]
    number = int(code, 16) if code else 0x20
    return chr(number) if number <= sys.maxunicode else " "


def _letters(text: str) -> str:
    """Letters and digits alone, in one case and one form."""
    return _NO_WORD.sub("", unicodedata.normalize("NFKC", text).casefold())


def _cut(text: str) -> Iterator[str]:
    for start in range(0, max(len(text), 1), PIECE_CHARS):
        yield text[max(start - OVERLAP_CHARS, 0) : start + PIECE_CHARS]
