"""`trimtab serve` on a terminal: what a person reads there, and which bytes never reach it."""

import asyncio
import os
import pty
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import orjson
import pytest
from programs.serving import own_environment
from programs.starts import start_trimtab
from support.client import SMALL, post
from support.sessions import make_session

CONFIG = """
store: memory
upstream: {{base_url: "{url}"}}
upstreams: {{second: {{base_url: "{url}", api_key: x}}}}
models: [{{match: "gpt-4o*", context_window: 8000, upstream: second}}]
"""
ASKED = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]}
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "gpt-4o\x1b[2J\r\nfake line \u202e\x9b"
TOKENS = r"\d+ tokens \(limit \d+\)"


GREETING = ("  In the client's terminal:", "    export ", "  Dashboard: ")
CLEAR = "\r\x1b[K"
"""What clears the terminal's line."""


class Screen:
    """The lines that a program writes to its terminal."""

    def __init__(self, reader: asyncio.StreamReader, stop: Callable[[], None]) -> None:
        self._reader = reader
        self._stop = stop
        self.is_stopped = False

    def stop(self) -> None:
        """Ask the program to end.

        Only once: if the program has just ended, a second signal would take its exit status from those who wait for it.
        """
        self.is_stopped = True
        self._stop()

    async def read_rest(self) -> str:
        """Everything that the program still writes until it ends."""
        rest = b""
        with suppress(OSError):  # the end of a pseudo-terminal
            while piece := await asyncio.wait_for(self._reader.read(4096), 30):
                rest += piece
        return rest.decode()

    async def read_greeting(self) -> list[str]:
        """The lines that say what to set, up to the dashboard's URL."""
        lines = [await self.read_line()]
        while not lines[-1].startswith("  Dashboard: "):
            lines.append(await self.read_line())
        assert all(line.startswith(GREETING) for line in lines)
        return lines

    async def read_line_after_clearing(self) -> str:
        """The next line without its colours, if it clears the terminal's line first."""
        line = await self.read_until("\r\n")
        assert line.startswith((CLEAR, *GREETING))
        return COLOURS.sub("", line.removeprefix(CLEAR))

    async def read_until(self, text: str) -> str:
        """Everything up to this text, with all control characters."""
        return (await asyncio.wait_for(self._reader.readuntil(text.encode()), 30)).decode()

    async def read_line(self) -> str:
        """The next line without its colours. It must not contain other control characters."""
        line = (await self.read_until("\r\n")).removesuffix("\r\n").removeprefix(CLEAR)
        plain = COLOURS.sub("", line)
        assert plain.isprintable()
        return plain

    async def read_event(self) -> str:
        """The next line of the text log, without its time."""
        time, _, rest = (await self.read_line()).partition(" ")
        assert re.fullmatch(r"\d\d:\d\d:\d\d", time)
        return rest


@asynccontextmanager
async def on_terminal(*arguments: str, **environment: str) -> AsyncIterator[tuple[Screen, str]]:
    """Run the program with a pseudo-terminal as standard error. Yields the terminal and the first line.

    The terminal is a dumb one, unless the environment says something else.
    """
    ours, theirs = pty.openpty()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", buffering=0)
    )
    command = ["serve", "--listen", "127.0.0.1:0", *arguments]
    process = await start_trimtab(*command, stderr=theirs, env=own_environment() | {"TERM": "dumb"} | environment)
    os.close(theirs)
    try:
        screen = Screen(reader, process.terminate)
        yield screen, await screen.read_line()
        if process.returncode is None and not screen.is_stopped:
            screen.stop()
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        transport.close()


async def test_a_request_is_one_readable_line(client, upstream):
    """Text of a client never controls the terminal."""
    async with on_terminal("--upstream", upstream.url, "--set", "store=memory") as (screen, first):
        url = re.search(r" listening url=(\S+)/v1 ", first)[1]
        assert await screen.read_greeting() == [
            GREETING[0],
            f"    export OPENAI_BASE_URL={url}/v1",
            f"    export ANTHROPIC_BASE_URL={url}  # if the server has /v1/messages",
            f"  Dashboard: {url}/trimtab/",
        ]
        host = re.escape(upstream.url.removeprefix("http://").removesuffix("/v1"))
        for model, shown in (
            ("gpt-4o", "gpt-4o"),
            (HOSTILE, r"gpt-4o\x1b[2J\r\nfake line \u202e\x9b"),
            ("x" * 5000, "x" * 128 + "…"),
        ):
            await post(client, url + "/v1/chat/completions", ASKED | {"model": model})
            line = await screen.read_event()
            went = rf"200 unchanged {TOKENS} 3 out [\d.]+m?s POST /v1/chat/completions → {host} \w{{8}}"
            assert re.fullmatch(rf"{re.escape(shown)} {went}", line)
        await client.get(url + "/v1/%1b%5b2J?key=secret")
        assert re.fullmatch(rf"200 passed [\d.]+m?s GET /v1/\* → {host} \w{{8}}", await screen.read_event())


@pytest.mark.parametrize("as_option", [True, False], ids=["by option", "by environment"])
async def test_the_log_is_as_it_was_asked_for(as_option, client, upstream, tmp_path):
    """JSON on a terminal, with debug lines. The line has the upstream's name, and the model with its glob."""
    file = tmp_path / "trimtab.yaml"
    file.write_text(CONFIG.format(url=upstream.url))
    wanted = {"log-level": "DEBUG", "log-format": "json"}
    options = [f"--{name}={value}" for name, value in wanted.items()] if as_option else []
    environment = {f"TRIMTAB_{name.replace('-', '_').upper()}": value for name, value in wanted.items()}
    async with on_terminal("--config", str(file), *options, **({} if as_option else environment)) as (screen, first):
        url = orjson.loads(first)["url"]
        await post(client, url + "/chat/completions", {"model": "gpt-4o-mini", "messages": []})
        await post(client, url + "/chat/completions", ASKED)
        await client.get(url.removesuffix("/v1") + "/trimtab/health")
        lines = [orjson.loads(await screen.read_line()) for _ in range(5)]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("request_begun", "debug"),
        ("request", "info"),
        ("request_begun", "debug"),
        ("request", "info"),
        ("page", "debug"),
    ]
    assert {lines[at]["request_id"] for at in (0, 1)}.isdisjoint(lines[at]["request_id"] for at in (2, 3))
    expected = {"path": "/v1/chat/completions", "upstream": "second", "model": "gpt-4o-mini", "match": "gpt-4o*"}
    assert lines[3].items() >= expected.items()
    assert (lines[4]["path"], lines[4]["status"]) == ("/trimtab/health", 200)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_live_line_shows_what_is_saved_and_never_mixes_with_the_log(workers, client, upstream):
    """Each log line clears it first. With several workers it has the figures of all of them. The last one stays."""
    shape = ("--set", f"workers={workers}", "--set", "store=memory", "--set", "limits.drain_seconds=1")
    small = [part for setting in SMALL for part in ("--set", setting)]
    arguments = ("--upstream", upstream.url, *shape, *small, "--set", "defaults.overflow_strategy=prune")
    body = {"model": "m", "messages": make_session(20)["messages"]}
    async with on_terminal(*arguments, TERM="xterm") as (screen, first):
        before = first
        while " listening " not in before:
            before = await screen.read_line_after_clearing()
        url = re.search(r" listening url=(\S+)/v1 ", before)[1]
        for number in range(1, 4):
            answer, _ = await post(client, url + "/v1/chat/completions", body, Connection="close")
            assert answer.status == 200
            noun = "request" if number == 1 else "requests"
            shown = await screen.read_until(f"{CLEAR}{number} {noun}, ")
            (line,) = [line for line in shown.split("\r\n") if " POST " in line]
            assert CLEAR in line
            assert COLOURS.sub("", line.rpartition(CLEAR)[2]).isprintable()
        figures = await screen.read_until(" fewer)")
    original, sent = (int(text.replace(",", "")) for text in re.findall(r"[\d,]+(?= →| prompt)", figures))
    assert original > sent > 0
    assert original % 3 == 0


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}], ids=str)
async def test_a_terminal_that_wants_none_gets_no_live_line(environment, client, upstream):
    """Every line of the run is printable. On other terminals, the live line is written once more at the end."""
    async with on_terminal("--upstream", upstream.url, "--set", "store=memory", **environment) as (screen, first):
        await screen.read_greeting()
        url = re.search(r" listening url=(\S+)/v1 ", first)[1]
        await post(client, url + "/v1/chat/completions", ASKED)
        assert " POST " in await screen.read_line()
        screen.stop()
        rest = COLOURS.sub("", await screen.read_rest())
    assert " draining " in rest
    assert all(line.isprintable() for line in rest.split("\r\n"))


async def test_the_configuration_says_how_the_log_is_written_and_the_options_win(client, upstream, tmp_path):
    """`log` of the file and its variables have an effect; an option is stronger than both."""
    file = tmp_path / "trimtab.yaml"
    file.write_text(CONFIG.format(url=upstream.url) + "log: {format: json, level: error}\n")
    async with on_terminal("--config", str(file), TRIMTAB_LOG__LEVEL="info") as (_, first):
        assert orjson.loads(first)["event"] == "listening"
    async with on_terminal("--config", str(file), "--log-format", "text", "--log-level", "info") as (_, first):
        assert " listening " in first
