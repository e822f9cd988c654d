"""The log."""

import fcntl
import io
import os
import pty
import re
import select
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.telemetry.logs import (
    CLEAR_LINE,
    LEVELS,
    WHOLE_BYTES,
    JsonLines,
    LiveLine,
    _write_text,
    can_rewrite,
    configure_log,
    get_log,
    shows_text,
    together,
)

pytestmark = pytest.mark.usefixtures("restored_log")


REQUEST = {
    "request_id": "0123456789abcdef01234567",
    "endpoint": "chat",
    "method": "POST",
    "path": "/v1/chat/completions",
    "status": 200,
    "outcome": "compacted",
    "seconds": 1.24,
    "upstream": "api.openai.com",
    "model": "gpt-4o-mini",
    "match": "gpt-4o*",
    "original_tokens": 41230,
    "sent_tokens": 17002,
    "limit_tokens": 119808,
    "decisions": [
        {"rule": "truncate", "saved_tokens": 9800, "first_changed": 3},
        {"rule": "prune", "saved_tokens": 14428, "first_changed": 5},
    ],
    "completion_tokens": 512,
}
TO = "POST /v1/chat/completions → api.openai.com 01234567"
PASSED = {key: REQUEST[key] for key in ("request_id", "endpoint", "method", "status", "upstream")}


class _Stream(io.TextIOWrapper):
    """Replaces the test's own standard error."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.written = io.BytesIO()
        self._is_terminal = is_terminal
        super().__init__(self.written, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def lines(self) -> list[str]:
        return self.written.getvalue().decode().splitlines()


Configure = Callable[..., _Stream]


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Set up the log, on a terminal or elsewhere."""

    def start(level: str = "info", form: str = "auto", *, is_terminal: bool = False) -> _Stream:
        stream = _Stream(is_terminal=is_terminal)
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setenv("NO_COLOR", "1")
        configure_log(level, form)
        return stream

    return start


def _strip_time(line: str) -> str:
    time, _, rest = line.partition(" ")
    assert re.fullmatch(r"\d\d:\d\d:\d\d", time)
    return rest


def test_a_line_is_json_when_nobody_is_looking(configure: Configure) -> None:
    stream = configure()
    log = get_log()
    log.info("request", status=200, model="é\n", decisions=[{"rule": "prune"}])
    log.warning("other")

    first, second = map(orjson.loads, stream.lines)
    assert datetime.fromisoformat(first.pop("timestamp")).utcoffset() == timedelta(0)
    assert second["level"] == "warning"
    assert first == {
        "event": "request",
        "level": "info",
        "status": 200,
        "model": "é\n",
        "decisions": [{"rule": "prune"}],
    }


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            REQUEST,
            f"gpt-4o-mini (gpt-4o*) 200 compacted 41230→17002 tokens (limit 119808) truncate,prune 512 out 1.2s {TO}",
        ),
        (
            REQUEST
            | {"match": "gpt-4o-mini", "sent_tokens": 41230, "decisions": [], "outcome": "unchanged", "worker": 2},
            f"gpt-4o-mini 200 unchanged 41230 tokens (limit 119808) 512 out 1.2s {TO} worker=2",
        ),
        (
            REQUEST | {"status": 400, "outcome": "refused", "error": "too_long", "sent_tokens": 0},
            f"gpt-4o-mini (gpt-4o*) 400 refused too_long 41230 tokens (limit 119808) truncate,prune 512 out 1.2s {TO}",
        ),
        (
            PASSED | {"outcome": "passed", "seconds": 0.0421, "path": "/v1/models", "method": "GET"},
            "200 passed 42ms GET /v1/models → api.openai.com 01234567",
        ),
        (
            PASSED | {"status": 0, "outcome": "aborted", "seconds": 75.04, "path": "/v1/x", "upstream": None},
            "- aborted 75.0s POST /v1/x 01234567",
        ),
        (
            PASSED
            | {"status": 429, "outcome": "limited", "error": "limit_x", "client": "team 7", "seconds": 0.001}
            | {"method": "POST", "path": "/v1/x", "upstream": None},
            "429 limited limit_x 1ms team 7 POST /v1/x 01234567",
        ),
    ],
    ids=["compacted", "unchanged", "refused", "passed", "aborted", "limited"],
)
def test_a_request_is_one_readable_line_on_a_terminal(
    configure: Configure, fields: dict[str, object], line: str
) -> None:
    stream = configure(is_terminal=True)
    get_log().info("request", **fields)

    assert [_strip_time(written) for written in stream.lines] == [line]


def test_other_events_are_lines_of_names_and_values_on_a_terminal(configure: Configure) -> None:
    """The level is shown if it is not the usual one."""
    stream = configure(is_terminal=True)
    get_log().warning("store_unreachable", store="redis", reason="it is gone")
    get_log().info("draining", seconds=30)

    assert [_strip_time(line) for line in stream.lines] == [
        "[warning] store_unreachable store=redis reason='it is gone'",
        "draining seconds=30",
    ]


@pytest.mark.parametrize("event", ["request", "other"])
@given(text=st.text(alphabet=st.characters(), max_size=30))
def test_nothing_that_is_logged_reaches_a_terminal_but_signs(event: str, text: str) -> None:
    hostile = text + "\x1b]0;x\x07\r\n\x9b2J\u202e\ud800"
    fields = REQUEST | {"model": hostile, "path": hostile, "upstream": hostile, "match": hostile}
    with pytest.MonkeyPatch.context() as monkeypatch:
        stream = _Stream(is_terminal=True)
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setenv("NO_COLOR", "1")
        configure_log()
        get_log().info(event, **(fields if event == "request" else {"reason": hostile, "parts": [hostile]}))

    (line,) = stream.written.getvalue().decode().removesuffix("\n").split("\n")
    assert line.isprintable()


def test_the_form_may_be_asked_for(configure: Configure) -> None:
    """The default is text on a terminal and JSON elsewhere. Text in a file has dates, and no colours."""
    for form, is_terminal in (("auto", True), ("auto", False), ("json", True), ("text", False)):
        stream = configure(form=form, is_terminal=is_terminal)
        get_log().info("draining", seconds=30, path=Path("x"))
        (line,) = stream.lines
        assert line.startswith("{") is (form == "json" or (form == "auto" and not is_terminal))
        assert str(Path("x")) in line
    assert datetime.fromisoformat(line.partition(" ")[0]).tzinfo is not None


def test_a_terminal_gets_colours_unless_it_wants_none(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR is respected, as https://no-color.org asks."""
    plain = configure(is_terminal=True)
    get_log().warning("other")
    coloured = _Stream(is_terminal=True)
    monkeypatch.setattr("sys.stderr", coloured)
    monkeypatch.delenv("NO_COLOR")
    configure_log()
    get_log().warning("other")

    assert ["\x1b" in stream.lines[0] for stream in (plain, coloured)] == [False, True]


def test_what_is_below_the_level_is_not_logged(configure: Configure) -> None:
    for level in LEVELS:
        stream = configure(level)
        for name in LEVELS:
            getattr(get_log(), name)("event")
        assert [orjson.loads(line)["level"] for line in stream.lines] == list(LEVELS[LEVELS.index(level) :])


def test_times_are_those_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    try:
        stamped = _write_text()[0](None, "info", {})
        assert datetime.strptime(stamped["timestamp"], "%Y-%m-%dT%H:%M:%S%z").utcoffset() == timedelta(hours=2)
    finally:
        monkeypatch.undo()
        time.tzset()


def _read(stream: io.BytesIO) -> list[str]:
    return [orjson.loads(line)["n"] for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("event", ["request", "draining"])
def test_lines_of_a_block_are_written_together_at_its_end(event: str) -> None:
    """All others are written at once, also another thread's. Lines keep their order."""
    stream = io.BytesIO()
    lines = JsonLines(stream)
    lines.write("info", event, {"n": 1})
    assert _read(stream) == [1]
    with together:
        lines.write("info", event, {"n": 2})
        lines.write("warning", event, {"n": 3})
        assert _read(stream) == [1]
        other = threading.Thread(target=lines.write, args=("info", event, {"n": 4}))
        other.start()
        other.join()
        lines.write("info", event, {"n": 5})
        assert _read(stream) == [1, 2, 3, 4]
    assert _read(stream) == [1, 2, 3, 4, 5]


def test_lines_are_written_whole_for_other_processes_write_to_the_same_pipe() -> None:
    """A write has whole lines, at most what a pipe takes as one write. A longer line is written alone."""
    stream, lengths = Mock(), [10, 900, 5000, *[1000] * 5, 1]
    lines = JsonLines(stream)
    with together:
        for length in lengths:
            lines.write("info", "request", {"n": "x" * length})
    pieces = [call.args[0] for call in stream.write.mock_calls]
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert all(len(piece) <= WHOLE_BYTES or piece.count(b"\n") == 1 for piece in pieces)
    assert [len(orjson.loads(line)["n"]) for line in b"".join(pieces).splitlines()] == lengths
    assert 4 <= len(pieces) < 9


def test_a_stream_that_takes_nothing_any_more_fails_nobody() -> None:
    stream = io.BytesIO()
    lines = JsonLines(stream)
    stream.close()
    lines.write("warning", "request", {"n": 1})


def test_only_a_capable_terminal_gets_control_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text is for any terminal whose log is text. An empty NO_COLOR is as if it were not set."""
    for is_terminal, form, variables, text, live in (
        (True, "auto", {"TERM": "xterm"}, True, True),
        (True, "text", {"TERM": "xterm-256color", "NO_COLOR": ""}, True, True),
        (True, "json", {"TERM": "xterm"}, False, False),
        (False, "text", {"TERM": "xterm"}, False, False),
        (True, "auto", {"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        (True, "auto", {"TERM": "dumb"}, True, False),
        (True, "auto", {}, True, False),
    ):
        with monkeypatch.context() as patch:
            for name in ("TERM", "NO_COLOR"):
                patch.delenv(name, raising=False)
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.setattr("sys.stderr", _Stream(is_terminal=is_terminal))
            assert (shows_text(form), can_rewrite(form)) == (text, live)


# The line at the bottom of a terminal.


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
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    os.close(terminal.ours)
    os.close(terminal.theirs)


@pytest.mark.parametrize(
    ("columns", "shown"), [(40, "one, two, three, four, five"), (24, "one, two, three, four,…"), (0, None)]
)
def test_the_line_never_wraps(terminal: Terminal, monkeypatch, columns: int, shown: str | None) -> None:
    """It is cut to the terminal's width. A terminal that does not tell it has 80 columns."""
    terminal.resize(columns)
    monkeypatch.setattr("sys.stderr", terminal)
    text = "one, two, three, four, five"
    LiveLine().show(text)
    assert terminal.read() == f"{CLEAR_LINE}{shown or text}"


def test_the_last_line_stays(terminal: Terminal, monkeypatch) -> None:
    """The cursor goes to the next line, once, and only if there was a line. A hung-up terminal is no error."""
    monkeypatch.setattr("sys.stderr", terminal)
    shown = LiveLine()
    for _ in range(2):
        shown.end()
    shown.show("one")
    for _ in range(2):
        shown.end()
    assert terminal.read() == f"{CLEAR_LINE}one\r\n"

    os.close(terminal.ours)
    shown.show("two")
    shown.end()
    terminal.ours = os.dup(terminal.theirs)
