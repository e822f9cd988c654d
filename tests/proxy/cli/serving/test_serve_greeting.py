"""What `trimtab serve` prints on a terminal. The live line is tested end to end, on a real one."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.golden import check_golden
from support.model_learning import ListLog

from trimtab.proxy.cli.serving import serve
from trimtab.proxy.cli.serving.serve import Screen
from trimtab.proxy.config.load import load_config
from trimtab.proxy.telemetry.logs import LiveLine
from trimtab.proxy.telemetry.metrics import Metrics


def test_the_lines_to_set_are_those_of_the_dialects_of_the_upstreams(capsys: pytest.CaptureFixture[str]) -> None:
    """A server whose dialects are not known may have both. The dashboard is named if there is one, its token never."""
    claude = "upstreams={claude: {base_url: 'https://api.anthropic.com/v1', credential: client}}"
    greetings = {}
    for settings in (
        ("upstream.base_url=https://api.openai.com/v1", "dashboard={enabled: false}"),
        ("upstream.base_url=https://api.anthropic.com/v1", "admin_token=PLANTED"),
        ("upstream.base_url=http://127.0.0.1:8000/v1",),
        ("upstream.base_url=https://ours.openai.azure.com/openai/v1",),
        (claude, "models=[{match: 'claude*', upstream: claude}]"),
    ):
        config = load_config(settings=settings, environment={})
        Screen(is_read=True).greet(config, "http://p", "http://pages")
        out, greetings[" ".join(settings)] = capsys.readouterr()
        assert out == ""
    assert "PLANTED" not in "".join(greetings.values())
    check_golden("commands/greeting", greetings)


async def test_nothing_is_printed_if_nobody_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The log in a file has no other lines."""
    screen = Screen()
    screen.greet(load_config(environment={}), "http://p", "http://pages")
    metrics = Metrics()
    metrics.requests["m", "chat", "200", "unchanged"] += 1
    async with screen.showing(metrics, ListLog()):
        pass

    assert capsys.readouterr() == ("", "")


class _Counting(LiveLine):
    """Counts instead of writing."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = self.ended = 0
        self.twice = asyncio.Event()

    def show(self, text: str) -> None:
        assert text
        self.shown += 1
        if self.shown == 2:
            self.twice.set()

    def end(self) -> None:
        self.ended += 1


async def _show(line: _Counting, requests: int) -> AsyncIterator[None]:
    metrics = Metrics()
    if requests:
        metrics.requests["m", "chat", "200", "unchanged"] += requests
    async with Screen(is_read=True, line=line).showing(metrics, ListLog()):
        yield


async def test_between_two_states_of_the_live_line_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last state is shown at the end, without one, and stays. Before the first request there is none."""
    for requests, last in ((0, 0), (3, 1)):
        line = _Counting()
        async for _ in _show(line, requests):
            for _ in range(20):  # more turns of the pool that reads the figures than one state needs
                await asyncio.to_thread(str)
            assert line.shown == 0
        assert (line.shown, line.ended) == (last, 1)

    monkeypatch.setattr(serve, "PAUSE_SECONDS", 0)
    again = _Counting()
    async for _ in _show(again, 3):
        await asyncio.wait_for(again.twice.wait(), 30)


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_is_told_when_requests_are_accepted(
    is_abstract: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the socket that it names: a file, or an abstract one. Without systemd nothing is told."""
    name = f"@trimtab-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name[1:]}" if is_abstract else name)
        systemd.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        Screen().announce(load_config(environment={}), "http://p", "http://p", ListLog())
        assert systemd.recv(64) == b"READY=1"
    Screen().announce(load_config(environment={}), "http://p", "http://p", ListLog())  # systemd has gone
    monkeypatch.delenv("NOTIFY_SOCKET")
    Screen().announce(load_config(environment={}), "http://p", "http://p", ListLog())
