"""One line at the bottom of a terminal that is written again and again.

Law: a log line clears it first (proxy/telemetry/logs.py), so the two never mix. Each write is one system call, because
several processes may write to the same terminal.
"""

import os
import sys

from proxy.telemetry.screen import CLEAR_LINE

MIN_COLUMNS = 20
"""Chosen: in a narrower terminal, the line would have no figure."""
USUAL_COLUMNS = 80
"""For a terminal that does not tell its size. Source: the size of the VT100."""


class LiveLine:
    """The line on standard error."""

    def __init__(self) -> None:
        self._text = ""

    def show(self, text: str) -> None:
        """Write the line again, cut to the terminal's width."""
        columns = max(_read_columns(), MIN_COLUMNS)
        self._text = text if len(text) < columns else f"{text[: columns - 2]}…"
        self._write(f"{CLEAR_LINE}{self._text}")

    def end(self) -> None:
        """Leave the line as it is, and go to the next one."""
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
