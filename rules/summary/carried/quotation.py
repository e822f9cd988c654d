"""The frame around what is carried: as data, within a budget.

Law: nothing that is quoted can end the quotation or begin a marker. The text fits, or there is none.
"""

from collections.abc import Callable

from rules.summary.quoting import break_markers
from rules.text.markers import QUOTE_END, QUOTE_START

ROUNDS = 8
"""Of fitting at most: pieces are counted one by one, and cost a little less or more together."""


def quote(text: str) -> str:
    """A text in the marks of a quotation; its own markers are broken."""
    return frame(break_markers(text))


def frame(text: str) -> str:
    """A text whose markers are broken, in the marks of a quotation."""
    return f"{QUOTE_START}\n{text.rstrip()}\n{QUOTE_END}\n"


def fit(write: Callable[[int], str], *, max_tokens: int, count: Callable[[str], int]) -> str:
    """What `write` makes of a room of at most `max_tokens`, or of less if that is too large; empty if nothing fits."""
    room = max_tokens
    for _ in range(ROUNDS):
        if room <= 0:
            break
        text = write(room)
        excess = count(text) - max_tokens
        if excess <= 0:
            return text
        room -= excess
    return ""
