"""`trimtab demo`: what a person sees of it, and how it ends."""

import asyncio
import re
import signal
from dataclasses import replace
from io import StringIO

import aiohttp
import orjson
import pytest
from click.testing import CliRunner
from rich.console import Console

from proxy.cli.demo.command import run_demo, show_report
from proxy.cli.demo.replay import Cost, DemoReport
from proxy.cli.demo.session import make_session
from proxy.cli.main import main

REPORT = DemoReport(
    requests=164,
    refused=3,
    intact=161,
    refused_originals=139,
    largest_original_tokens=191_389,
    largest_prompt_tokens=21_483,
    limit_tokens=28_000,
    original=Cost(2_000_000, 1_000_000, 50_000),
    sent=Cost(500_000, 400_000, 50_000),
    summaries=Cost(40_000, 0, 5_000),
    summary_requests=13,
    decisions=(("truncate", 162), ("prune", 28)),
    overhead_ms=4.26,
    seconds=2.34,
    faults=(),
)


def test_table_shows_what_was_measured() -> None:
    """Each figure of a report stands in the output, and lines fit a narrow terminal."""
    out = StringIO()
    show_report(Console(file=out, width=80), replace(REPORT, faults=("fail_open",)))
    text = " ".join(out.getvalue().split())
    assert "Without trimtab the upstream would have refused 139 of 164 requests." in text
    assert "truncate in 162, prune in 28" in text
    assert "161 of 164 answers" in text
    assert "4.3 ms" in text
    assert "faults: fail_open" in text
    rows = {cells[1].strip(): [cell.strip() for cell in cells[2:4]] for cells in read_rows(out.getvalue())}
    assert rows == {
        "requests": ["164", "164"],
        "requests refused": ["139", "3"],
        "prompt tokens": ["2,000,000", "500,000"],
        "largest prompt (window 32,000)": ["191,389", "21,483"],
        "prefix kept (cached)": ["50.0%", "80.0%"],
        "summaries made": ["", "13"],
        "their prompt tokens": ["", "40,000"],
        "their completion tokens": ["", "5,000"],
        "cost": ["100.0%", "30.8%"],
    }
    assert max(map(len, out.getvalue().splitlines())) <= 80


def read_rows(text: str) -> list[list[str]]:
    return [line.split("│") for line in text.splitlines() if line.startswith("│")]


def test_cost_of_summaries_is_on_the_side_of_trimtab() -> None:
    """The ratio is what was sent, and what was summarised besides, over the session without either."""
    report = replace(REPORT, original=Cost(1000, 0, 0), sent=Cost(200, 0, 0), summaries=Cost(100, 0, 50))
    assert report.cost_ratio == 0.5


def test_command_prints_its_table_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain output: no escape sequence, no bar, no log; the user's own TRIMTAB_ variables change nothing."""
    monkeypatch.setattr("proxy.cli.demo.command.make_session", lambda: make_session(4))
    monkeypatch.setenv("TRIMTAB_UPSTREAM", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("TRIMTAB_AUTOCOMPACT_PCT", "not a number")
    result = CliRunner().invoke(main, ["demo"], catch_exceptions=False)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert "replaying" not in result.stdout
    rows = [[cell.strip() for cell in cells[1:4:2]] for cells in read_rows(result.stdout)]
    assert ["requests refused", "0"] in rows


async def test_demo_shows_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bar ends at the number of requests."""
    session = make_session(1)
    monkeypatch.setattr("proxy.cli.demo.command.make_session", lambda: session)
    monkeypatch.setattr("proxy.cli.demo.command.Console", lambda **_: Console(force_terminal=True, width=120))
    await run_demo(keep=False)
    count = len(session.turns)
    assert f"{count}/{count}" in capsys.readouterr().out


class Output(StringIO):
    """What is printed; `url` is done once the address of the proxy was."""

    def __init__(self) -> None:
        super().__init__()
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def write(self, text: str) -> int:
        found = re.search(r"^export OPENAI_BASE_URL=(\S+)$", text, re.MULTILINE)
        if found:
            self.url.set_result(found.group(1))
        return super().write(text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_demo_that_is_kept_serves_until_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The address that is printed answers, and a signal ends both servers, whoever is still connected."""
    out = Output()
    monkeypatch.setattr("proxy.cli.demo.command.make_session", lambda: make_session(1))
    monkeypatch.setattr("proxy.cli.demo.command.Console", lambda **_: Console(file=out, width=80))
    body = orjson.dumps({"model": "demo-model", "messages": [{"role": "user", "content": "hello"}]})
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks, aiohttp.ClientSession() as client:
        demo = tasks.create_task(run_demo(keep=True))
        url = await out.url
        async with client.post(f"{url}/chat/completions", data=body) as answer:
            assert (answer.status, "x-trimtab-tokens" in answer.headers) == (200, True)
            await answer.read()
        assert not demo.done()
        signal.raise_signal(number)
        await demo
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(f"{url}/models")
