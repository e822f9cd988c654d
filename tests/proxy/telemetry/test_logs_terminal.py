"""The terminal of standard error."""

import fcntl
import io
import os
import pty
import select
import struct
import termios
from collections.abc import Callable, Iterator

import pytest

from trimtab.proxy.telemetry.logs import CLEAR_LINE, LiveLine, can_rewrite, shows_text


class _Stream(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "form", "environment", "text", "live"),
    [
        (True, "auto", {"TERM": "xterm"}, True, True),
        (True, "text", {"TERM": "xterm-256color"}, True, True),
        (True, "json", {"TERM": "xterm"}, False, False),
        (False, "text", {"TERM": "xterm"}, False, False),
        (False, "auto", {"TERM": "xterm"}, False, False),
        (True, "auto", {"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        (True, "auto", {"TERM": "xterm", "NO_COLOR": ""}, True, True),
        (True, "auto", {"TERM": "dumb"}, True, False),
        (True, "auto", {}, True, False),
    ],
)
def test_only_a_capable_terminal_gets_control_sequences(
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    environment: dict[str, str],
    *,
    is_terminal: bool,
    text: bool,
    live: bool,
) -> None:
    """Text is for any terminal whose log is text. An empty NO_COLOR is as if it were not set."""
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr", _Stream(is_terminal=is_terminal))

    assert (shows_text(form), can_rewrite(form)) == (text, live)


# The line at the bottom of a terminal.

Line = Callable[[], LiveLine]


class Terminal:
    """A pseudo-terminal in place of standard error."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()

    def fileno(self) -> int:
        return self.theirs

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self) -> str:
        """All that was written. The kernel may hand it out in pieces."""
        written = b""
        while select.select([self.ours], [], [], 0.2)[0]:
            written += os.read(self.ours, 4096)
        return written.decode()


@pytest.fixture
def line(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Callable[[], LiveLine]:
    """Makes a line on the terminal. It is called in the test, because pytest sets sys.stderr before each."""

    def make() -> LiveLine:
        monkeypatch.setattr("sys.stderr", terminal)
        return LiveLine()

    return make


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    os.close(terminal.ours)
    os.close(terminal.theirs)


@pytest.mark.parametrize(
    ("columns", "shown"), [(40, "one, two, three, four, five"), (24, "one, two, three, four,…"), (0, None)]
)
def test_the_line_never_wraps(terminal: Terminal, line: Line, columns: int, shown: str | None) -> None:
    """It is cut to the terminal's width. A terminal that does not tell it has 80 columns."""
    terminal.resize(columns)
    text = "one, two, three, four, five"
    line().show(text)

    assert terminal.read() == f"{CLEAR_LINE}{shown or text}"


def test_the_last_line_stays(terminal: Terminal, line: Line) -> None:
    """The cursor goes to the next line, once, and only if there was a line."""
    shown = line()
    shown.end()
    shown.show("one")
    shown.end()
    shown.end()

    assert terminal.read() == f"{CLEAR_LINE}one\r\n"


def test_a_terminal_that_is_gone_stops_nothing(terminal: Terminal, line: Line) -> None:
    """Writing to a hung-up terminal is no error."""
    shown = line()
    os.close(terminal.ours)
    shown.show("one")
    shown.end()
    terminal.ours = os.dup(terminal.theirs)
