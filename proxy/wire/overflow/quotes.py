"""Checks whether the text of a refusal also appears in its request: a client could have planted it there.

Law: pure, never raises, linear in the length of the body. A body that cannot be read as text counts as quoted. Texts
are compared by letters and digits only, so escapes, spaces and punctuation that a server adds or drops hide no quote.
"""

import html
import re
import sys
import unicodedata
from collections.abc import Iterator
from enum import IntEnum
from urllib.parse import unquote

from trimtab.proxy.wire.overflow.classify import Overflow
from trimtab.proxy.wire.overflow.numbers import read_number
from trimtab.proxy.wire.overflow.wordings import MEANINGS, NUMBER, Kind

WORD_CHARS = 12
"""Letters and digits before a number that are compared. Chosen: enough to tell a server's text from a client's."""
PIECE_CHARS = 256 * 1024
"""A body is searched in pieces of this size. Chosen: so no step holds the interpreter for long."""
OVERLAP_CHARS = 4096
"""Overlap of two pieces. Chosen: longer than any text that is searched for, however it is escaped."""

_ESCAPE = re.compile(
    r"\\+(?:u(?P<code>[0-9a-fA-F]{4})|U00(?P<long>[0-9a-fA-F]{6})|x(?P<byte>[0-9a-fA-F]{2})|[nrtbfav0\"'/\\]|(?=\W|$))"
)
"""An escape as JSON, Python, Go and JavaScript write it; several backslashes if it is escaped repeatedly."""
_NO_WORD = re.compile(r"[\W_]+")
_DIGITS = re.compile(NUMBER)
_RUN = re.compile(r"\d+")


class Quoted(IntEnum):
    NOTHING = 0
    NUMBER = 1
    """The request contains a number that the refusal gives. What is learned from it is only a guess."""
    WORDS = 2
    """The request contains the text of the refusal, or cannot be read. Nothing is learned."""


def find_quotes(overflow: Overflow, body: bytes) -> Quoted:
    """How much of a refusal appears in the request's body, however either of them is escaped or spaced."""
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
    """The letters and digits to search for: each number that is used, with the text before it.

    If the text has none of these numbers: the words by which it was recognised as a refusal, unless a code tells that.
    """
    used = set(_find_numbers(overflow))
    is_told = False
    for match in _DIGITS.finditer(text):
        if read_number(match[0]) in used:
            before = _letters(text[: match.start()])[-WORD_CHARS:]
            is_told = True
            if before:
                yield before + _letters(match[0])
    if not is_told and not overflow.is_coded:  # no client can plant a code, which is apart from the text
        for wording in MEANINGS:
            found = wording.pattern.search(text) if wording.kind is Kind.PROMPT else None
            if found is not None and _letters(found[0]):
                yield _letters(found[0])


def _find_numbers(overflow: Overflow) -> list[int]:
    told = (overflow.limit, overflow.requested, overflow.prompt_tokens, overflow.excess_tokens)
    return [number for number in told if number is not None]


def _holds_number(plain: str, numbers: list[int], refusal: str) -> bool:
    """Whether a text contains one of the numbers as a run of digits.

    A number at the very end of the refusal may be cut off; then any run that begins with it counts.
    """
    runs = {
        int(unicodedata.normalize("NFKC", run)[:20]) for run in _RUN.findall(plain.replace(",", "").replace("_", ""))
    }
    if not runs.isdisjoint(numbers):
        return True
    last = _RUN.search(refusal.rstrip(" .…'\"")[::-1])
    cut = last[0][::-1] if last is not None and last.start() == 0 else ""
    return bool(cut) and int(cut) in numbers and any(str(run).startswith(cut) for run in runs)


def _render(text: str) -> set[str]:
    """The refusal with its escapes undone, also those of HTML and of URLs."""
    plain = _unescape(text)
    return {plain, _unescape(html.unescape(text)), _unescape(unquote(text))}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    # Two escapes may form one character (a surrogate pair), for example a digit of another script.
    return _ESCAPE.sub(_read_escape, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_escape(escape: re.Match[str]) -> str:
    code = escape["code"] or escape["long"] or escape["byte"]
    number = int(code, 16) if code else 0x20
    return chr(number) if number <= sys.maxunicode else " "


def _letters(text: str) -> str:
    """Only letters and digits, in lower case and in Unicode's compatibility form (NFKC)."""
    return _NO_WORD.sub("", unicodedata.normalize("NFKC", text).casefold())


def _cut(text: str) -> Iterator[str]:
    for start in range(0, max(len(text), 1), PIECE_CHARS):
        yield text[max(start - OVERLAP_CHARS, 0) : start + PIECE_CHARS]
