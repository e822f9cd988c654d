"""Quote carried text as data, within a budget.

Law: quoted text can neither end the quotation nor begin a marker. The result fits the budget or is empty.
"""

from collections.abc import Callable

from rules.summary.quoting import break_markers
from rules.text.markers import QUOTE_END, QUOTE_START

ROUNDS = 8
"""Maximum number of attempts to fit the budget. Pieces are counted one by one, and their sum differs a little from the
count of the whole text, so the first attempt may be too long. Chosen: bounds the work."""


def quote(text: str) -> str:
    """Return a text as a quotation, with the markers in it broken."""
    return frame(break_markers(text))


def frame(text: str) -> str:
    """Return a text as a quotation. The markers in it must be broken already."""
    return f"{QUOTE_START}\n{text.rstrip()}\n{QUOTE_END}\n"


def fit(write: Callable[[int], str], *, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the result of `write` for a room of `max_tokens`, or for less room if that result is too long.

    Empty if no attempt fits `max_tokens`.
    """
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
