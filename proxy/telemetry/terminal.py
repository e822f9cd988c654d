"""The terminal of standard error: whether there is one, what it can show, and a line at its bottom.

Law: a program whose standard error is a file or a pipe gets no control sequence. A log line clears the live line first
(proxy/telemetry/logs.py), so the two never mix. Each write is one system call, because several processes may write to
the same terminal.
"""

import os
import sys

CLEAR_LINE = "\r\x1b[K"
"""Moves the cursor to the beginning of the line and clears it. Source: ECMA-48, CR and EL."""
DUMB = frozenset({"", "dumb", "unknown"})
"""Values of TERM of terminals that know no control sequences. Source: terminfo(5)."""
MIN_COLUMNS = 20
"""Chosen: in a narrower terminal, the line would have no figure."""
USUAL_COLUMNS = 80
"""For a terminal that does not tell its size. Source: the size of the VT100."""


def is_terminal() -> bool:
    return sys.stderr.isatty()


def shows_text(form: str) -> bool:
    """Whether a person reads standard error: a terminal, if the log's form there is text. `form`: one of FORMATS."""
    return is_terminal() and form in {"auto", "text"}


def can_rewrite(form: str) -> bool:
    """Whether a line there can be written again and again. NO_COLOR says that the user wants no control sequences."""
    return shows_text(form) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in DUMB


class LiveLine:
    def __init__(self) -> None:
        self._text = ""

    def show(self, text: str) -> None:
        columns = max(_read_columns(), MIN_COLUMNS)
        self._text = text if len(text) < columns else f"{text[: columns - 2]}…"
        self._write(f"{CLEAR_LINE}{self._text}")

    def end(self) -> None:
        if self._text:
            self._write("\n")
            self._text = ""

    def _write(self, text: str) -> None:
        """Write at once. A terminal that is gone must stop no proxy."""
        try:
            os.write(sys.stderr.fileno(), text.encode())
        except OSError:
            self._text = ""


def _read_columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or USUAL_COLUMNS
    except OSError:
        return USUAL_COLUMNS
