"""The terminal of standard error: whether there is one, and what it can show.

Law: only these questions are asked of it. A program whose standard error is a file or a pipe gets no control sequence.
"""

import os
import sys

CLEAR_LINE = "\r\x1b[K"
"""Moves the cursor to the beginning of the line and clears it. Source: ECMA-48, CR and EL."""
DUMB = frozenset({"", "dumb", "unknown"})
"""Values of TERM of terminals that know no control sequences. Source: terminfo(5)."""


def is_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


def shows_text(form: str) -> bool:
    """Whether a person reads standard error: a terminal, if the log's form there is text. `form`: one of FORMATS."""
    return is_terminal() and form in {"auto", "text"}


def can_rewrite(form: str) -> bool:
    """Whether a line there can be written again and again. NO_COLOR says that the user wants no control sequences."""
    return shows_text(form) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in DUMB
