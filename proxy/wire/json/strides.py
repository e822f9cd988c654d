"""A JSON text gone through in strides, so that no single call into C holds the interpreter for long.

Law: what is found does not depend on the strides. Linear in the length of the text, whatever is in it.
"""

import re
from collections.abc import Iterator

STRIDE_BYTES = 256 * 1024
"""At most some milliseconds of the slowest pattern used here, on an ordinary core."""
STRING = rb'"(?:[^"\\]{1,1024}+|\\.){0,64}+"'
"""A string that is not very long. For what `find_tokens` finds, beside the bare quotation mark."""
_INSIDE = re.compile(rb'(?:[^"\\]{1,1024}+|\\.){1,4096}+', re.DOTALL)
_QUOTE = ord('"')


def holds(text: bytes, part: bytes) -> bool:
    """Whether `part` stands in the text: a search may be slow on hostile text."""
    reach = STRIDE_BYTES + len(part) - 1
    return any(text.find(part, start, start + reach) >= 0 for start in range(0, len(text), STRIDE_BYTES))


def count_bytes(text: bytes, sign: bytes) -> int:
    """How often one byte stands in the text."""
    return sum(text.count(sign, start, start + STRIDE_BYTES) for start in range(0, len(text), STRIDE_BYTES))


def close_string(text: bytes, at: int) -> int:
    """The place behind the string whose inside begins at `at`; the text's end if nothing ends the string."""
    while at < len(text):
        run = _INSIDE.match(text, at)
        if run is None:
            return at + 1 if text[at] == _QUOTE else len(text)
        at = run.end()
    return at


def find_tokens(pattern: re.Pattern[bytes], text: bytes, at: int = 0, *, longest: int = 1) -> Iterator[re.Match[bytes]]:
    """The tokens of a text from `at` on: strings, and what else the pattern finds, of at most `longest` bytes.

    The pattern finds STRING or else a bare quotation mark: that opens a very long string, or one that nothing ends,
    which is passed over.
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
