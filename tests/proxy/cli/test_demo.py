"""`trimtab demo`: what a person sees of it, and how it ends."""

import asyncio
import re
import signal
from io import StringIO

import aiohttp
import orjson
import pytest
from click.testing import CliRunner
from rich.console import Console

from trimtab.proxy.cli.demo import Cost, Exchange, Replay, Served, price, run_demo, share_cached, show_replay
from trimtab.proxy.cli.demo_session import make_session
from trimtab.proxy.cli.main import main


def _exchange(tokens: int, cached_tokens: int, *, status: int = 200, rules: tuple[str, ...] = ()) -> Exchange:
    return Exchange(Cost(tokens, cached_tokens), status, f"hash {tokens}", frozenset(rules), overhead_ms=4.26)


REPLAY = Replay(
    exchanges=[
        _exchange(20_000, 0, rules=("truncate",)),
        _exchange(80_000, 60_000, rules=("truncate", "prune")),
        _exchange(191_389, 100_000, status=400),
    ],
    served=[
        Served(True, 200, Cost(20_000, 0, 1_000), "hash 20000"),  # noqa: FBT003 - a stream
        Served(False, 200, Cost(40_000, 0, 5_000), "a summary's"),  # noqa: FBT003 - no stream
        Served(True, 200, Cost(21_483, 18_000, 2_000), "hash 80000"),  # noqa: FBT003 - a stream
        Served(True, 400, Cost(21_000, 20_000), "another"),  # noqa: FBT003 - a stream
    ],
)


def test_table_shows_what_was_measured() -> None:
    """Each figure is in the output, and lines fit a narrow terminal."""
    out = StringIO()
    show_replay(Console(file=out, width=80), REPLAY)
    text = " ".join(out.getvalue().split())
    assert "Without trimtab the upstream would have refused 2 of 3 requests." in text
    assert "truncate in 2, prune in 1" in text
    assert "2 of 3 answers" in text
    assert "4.3 ms" in text
    rows = {cells[1].strip(): [cell.strip() for cell in cells[2:4]] for cells in read_rows(out.getvalue())}
    assert rows == {
        "requests": ["3", "3"],
        "requests refused": ["2", "1"],
        "prompt tokens": ["291,389", "41,483"],
        "largest prompt (window 32,000)": ["191,389", "40,000"],
        "read from the prompt cache": ["54.9%", "43.4%"],
        "summaries made": ["", "1"],
        "summary prompt tokens": ["", "40,000"],
        "summary completion tokens": ["", "5,000"],
        "cost": ["100.0%", "61.0%"],
    }
    assert max(map(len, out.getvalue().splitlines())) <= 80


def read_rows(text: str) -> list[list[str]]:
    return [line.split("│") for line in text.splitlines() if line.startswith("│")]


def test_cost_weighs_cached_input_and_output() -> None:
    """Cached input costs a tenth of input, output four times as much."""
    assert Cost(100, 40, 5) + Cost(10, 10, 1) == Cost(110, 50, 6)
    assert price(Cost(100, 40, 5)) == 60 + 4 + 20
    assert share_cached(Cost()) == 0


def test_command_prints_its_table_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain output: no escape sequence, no bar, no log; the user's own TRIMTAB_ variables change nothing."""
    monkeypatch.setattr("trimtab.proxy.cli.demo.make_session", lambda: make_session(4))
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
    """The bar ends when all requests are done."""
    monkeypatch.setattr("trimtab.proxy.cli.demo.make_session", lambda: make_session(1))
    monkeypatch.setattr("trimtab.proxy.cli.demo.Console", lambda **_: Console(force_terminal=True, width=120))
    await run_demo(keep=False)
    out = capsys.readouterr().out
    assert "replaying" in out
    assert "100%" in out


class Output(StringIO):
    """Keeps what is printed. `url` has a result as soon as the URL of the proxy is printed."""

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
    """The printed URL answers. A signal ends both servers, even if a client is connected."""
    out = Output()
    monkeypatch.setattr("trimtab.proxy.cli.demo.make_session", lambda: make_session(1))
    monkeypatch.setattr("trimtab.proxy.cli.demo.Console", lambda **_: Console(file=out, width=80))
    body = orjson.dumps({"model": "demo-model", "messages": [{"role": "user", "content": "hello"}]})
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks, aiohttp.ClientSession() as client:
        demo = tasks.create_task(run_demo(keep=True))
        url = await out.url
        async with client.post(f"{url}/chat/completions", data=body) as answer:
            assert (answer.status, "x-trimtab-tokens" in answer.headers) == (200, True)
            await answer.read()
        assert f"See the session on the dashboard: {url.removesuffix('/v1')}/trimtab/\n" in out.getvalue()
        async with client.get(f"{url.removesuffix('/v1')}/trimtab/api/models") as page:
            assert page.status == 200
        assert not demo.done()
        signal.raise_signal(number)
        await demo
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(f"{url}/models")
