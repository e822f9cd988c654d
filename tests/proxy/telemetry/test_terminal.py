"""The terminal of standard error."""

import io

import pytest

from trimtab.proxy.telemetry.terminal import can_rewrite, shows_text


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
