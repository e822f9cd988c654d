"""The log."""

import io
import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.telemetry.logs import LEVELS, _write_text, configure_log, get_log

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
    """Each line is one object with level and time, whatever characters it contains."""
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


def test_a_request_as_text_says_which_worker_served_it(configure: Configure) -> None:
    """If there are several workers, the number follows the sentence."""
    stream = configure(form="text", is_terminal=True)
    get_log().info("request", worker=2, **REQUEST)
    (line,) = stream.lines
    assert line.endswith(f"{TO} worker=2")


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            REQUEST,
            f"gpt-4o-mini (gpt-4o*) 200 compacted 41230→17002 tokens (limit 119808) truncate,prune 512 out 1.2s {TO}",
        ),
        (
            REQUEST | {"match": "gpt-4o-mini", "sent_tokens": 41230, "decisions": [], "outcome": "unchanged"},
            f"gpt-4o-mini 200 unchanged 41230 tokens (limit 119808) 512 out 1.2s {TO}",
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
    """It has model, outcome, tokens, time, and where the request went."""
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
    """It has no escape sequence, line break or change of direction. Each event is one line of printable characters."""
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


@pytest.mark.parametrize(
    ("form", "is_terminal", "is_json"),
    [
        ("auto", True, False),
        ("auto", False, True),
        ("json", True, True),
        ("text", False, False),
    ],
)
def test_the_form_may_be_asked_for(configure: Configure, form: str, *, is_terminal: bool, is_json: bool) -> None:
    """The default is text on a terminal and JSON elsewhere. Text in a file has dates, and no colours."""
    stream = configure(form=form, is_terminal=is_terminal)
    get_log().info("draining", seconds=30)

    (line,) = stream.lines
    assert line.startswith("{") is is_json
    if not is_json and not is_terminal:
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


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_below_the_level_is_not_logged(configure: Configure, level: str) -> None:
    """That level and all higher levels are logged."""
    stream = configure(level)
    for name in LEVELS:
        getattr(get_log(), name)("event")

    assert [orjson.loads(line)["level"] for line in stream.lines] == list(LEVELS[LEVELS.index(level) :])


def test_a_value_that_is_no_json_does_not_break_the_log(configure: Configure) -> None:
    """A path or an exception is written as its text."""
    stream = configure()
    get_log().error("fault", error=ValueError("x"), path=Path("x"))

    fault = orjson.loads(stream.lines[0])
    assert (fault["error"], fault["path"]) == ("ValueError('x')", repr(Path("x")))


def test_times_are_those_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """With their distance from UTC."""
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    try:
        stamped = _write_text()[0](None, "info", {})
        assert datetime.strptime(stamped["timestamp"], "%Y-%m-%dT%H:%M:%S%z").utcoffset() == timedelta(hours=2)
    finally:
        monkeypatch.undo()
        time.tzset()
