"""Searches a JSON text in strides, so that no single call into C holds the interpreter for long.

Law: the result does not depend on the strides. The time is linear in the length of the text, whatever it contains.
"""

import re
from collections.abc import Iterator

STRIDE_BYTES = 256 * 1024
"""Bytes of one stride. Chosen: the slowest pattern used here takes a few milliseconds for it on an ordinary core."""
STRING = rb'"(?:[^"\\]{1,1024}+|\\.){0,64}+"'
"""Matches a string that is not very long. In a pattern for `find_tokens`, `|"` must follow it, for the longer ones."""
_INSIDE = re.compile(rb'(?:[^"\\]{1,1024}+|\\.){1,4096}+', re.DOTALL)
_QUOTE = ord('"')


def holds(text: bytes, part: bytes) -> bool:
    """Whether the text contains `part`. It is searched in strides, because a search may be slow on hostile text."""
    reach = STRIDE_BYTES + len(part) - 1
    return any(text.find(part, start, start + reach) >= 0 for start in range(0, len(text), STRIDE_BYTES))


def count_bytes(text: bytes, sign: bytes) -> int:
    """How often the byte `sign` occurs in the text."""
    return sum(text.count(sign, start, start + STRIDE_BYTES) for start in range(0, len(text), STRIDE_BYTES))


def close_string(text: bytes, at: int) -> int:
    """The offset after the string whose content begins at `at`; the end of the text if the string is not closed."""
    while at < len(text):
        run = _INSIDE.match(text, at)
        if run is None:
            return at + 1 if text[at] == _QUOTE else len(text)
        at = run.end()
    return at


def find_tokens(pattern: re.Pattern[bytes], text: bytes, at: int = 0, *, longest: int = 1) -> Iterator[re.Match[bytes]]:
    """The tokens of a text from `at` on: strings, and the other matches of the pattern, of at most `longest` bytes.

    The pattern must match STRING, or else a bare quotation mark. Such a mark opens a very long string or one that is
    not closed; the mark is yielded, and the search goes on after that string.
    """
    while at < len(text):
        stop = min(at + STRIDE_BYTES, len(text))
        behind = stop if stop == len(text) else stop - longest + 1
        for found in pattern.finditer(text, at, stop):
            yield found
            behind = max(behind, found.end())
            if found.end() - found.start() == 1 and text[found.start()] == _QUOTE:
                behind = close_string(text, found.end())
                break
        at = behind
