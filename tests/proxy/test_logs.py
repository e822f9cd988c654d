"""The log."""

import io
from datetime import datetime
from pathlib import Path

import orjson
import pytest

from proxy.logs import configure_log, get_log

pytestmark = pytest.mark.usefixtures("restored_log")


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_a_line_is_json_when_nobody_is_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """One object a line, with level and time, whatever characters are in it."""
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(buffer))
    configure_log()
    log = get_log()
    log.info("request", status=200, model="é\n", decisions=[{"rule": "prune"}])
    log.warning("other")

    first, second = map(orjson.loads, buffer.getvalue().splitlines())
    assert datetime.fromisoformat(first.pop("timestamp")).tzinfo is not None
    assert second["level"] == "warning"
    assert first == {
        "event": "request",
        "level": "info",
        "status": 200,
        "model": "é\n",
        "decisions": [{"rule": "prune"}],
    }


def test_a_terminal_gets_lines_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not JSON, but the same event and values."""
    buffer = io.BytesIO()
    terminal = _Terminal(buffer)
    monkeypatch.setattr("sys.stderr", terminal)
    configure_log()
    get_log().info("request", status=200)
    terminal.flush()

    line = buffer.getvalue()
    assert b"request" in line
    assert b"200" in line
    assert not line.startswith(b"{")


def test_a_value_that_is_no_json_does_not_break_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path or an exception is written as its text."""
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(buffer))
    configure_log()
    get_log().error("fault", error=ValueError("x"), path=Path("x"))

    assert orjson.loads(buffer.getvalue())["event"] == "fault"
