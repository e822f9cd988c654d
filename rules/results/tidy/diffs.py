"""Diffs inside a text: all in them is content.

A change may consist of blanks or of line ends, and a hunk with a line less is no patch any more.
"""

import re
from collections.abc import Callable, Iterator

from rules.text.chunks import cut_lines, holds

_SIGN = "@@ -"
_COLOUR = r"(?:\x1b\[[\d;]*+m)*+"
# Source: the unified format of GNU diff, the extended headers of git diff, and its combined format ("@@@").
_HUNK = re.compile(
    rf"^{_COLOUR}(?:--- [^\n]*+\n{_COLOUR}\+\+\+ [^\n]*+\n{_COLOUR})?@@@?+(?: -\d++(?:,\d++)?+)++ \+\d", re.MULTILINE
)
_REST = re.compile(
    r"(?:(?:(?=[ +\-@\\\x1b\r\n])|diff |index |new |deleted |old |similarity |dissimilarity |rename |copy |Binary )"
    r"[^\n]*+(?:\n|\Z))*+"
)
"""Lines that may follow in a diff. What of the text behind it looks like them is left alone, too."""


def change_outside_diffs(text: str, change: Callable[[str], str]) -> str:
    """The text with `change` made to it, but for the lines of the unified diffs that it holds."""
    if not holds(text, _SIGN):
        return change(text)
    return "".join(piece if is_diff else change(piece) for piece, is_diff in _cut_diffs(text))


def _cut_diffs(text: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces of whole lines, and of each whether it belongs to a diff."""
    inside = False
    for piece in cut_lines(text):
        done = 0
        while done < len(piece):
            if inside:
                rest = _REST.match(piece, done)
                end = rest.end() if rest else done
            else:
                hunk = _HUNK.search(piece, done) if _SIGN in piece else None
                end = hunk.start() if hunk else len(piece)
            if end > done:
                yield piece[done:end], inside
            inside = inside == (end == len(piece))
            done = end
