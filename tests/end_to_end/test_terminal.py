"""`trimtab serve` on a terminal: what a person reads there, and which bytes never reach it."""

import asyncio
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest
from programs.serving import own_environment
from support.client import post

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


class Screen:
    """The lines that a program writes to its terminal."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def read_line(self) -> str:
        """The next line without its colours. It must not contain other control characters."""
        line = (await asyncio.wait_for(self._reader.readuntil(b"\r\n"), 30)).decode().removesuffix("\r\n")
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
    """Run the program with a pseudo-terminal as standard error. Yields the terminal and the first line."""
    ours, theirs = pty.openpty()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", buffering=0)
    )
    command = [sys.executable, "-m", "proxy", "serve", "--listen", "127.0.0.1:0", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stderr=theirs, env=own_environment() | environment)
    os.close(theirs)
    try:
        screen = Screen(reader)
        yield screen, await screen.read_line()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        transport.close()


async def test_a_request_is_one_readable_line(client, upstream):
    """Text of a client never controls the terminal."""
    async with on_terminal("--upstream", upstream.url, "--set", "store=memory") as (screen, first):
        url = re.search(r" listening url=(\S+)/v1 ", first)[1]
        host = re.escape(upstream.url.removeprefix("http://").removesuffix("/v1"))
        for model, shown in (
            ("gpt-4o", "gpt-4o"),
            (HOSTILE, r"gpt-4o\x1b[2J\r\nfake line \u202e\x9b"),
            ("x" * 5000, "x" * 128 + "…"),
        ):
            await post(client, url + "/v1/chat/completions", ASKED | {"model": model})
            line = await screen.read_event()
            went = rf"200 unchanged {TOKENS} 3 out \d+ms POST /v1/chat/completions → {host} \w{{8}}"
            assert re.fullmatch(rf"{re.escape(shown)} {went}", line)
        await client.get(url + "/v1/%1b%5b2J?key=secret")
        assert re.fullmatch(rf"200 passed \d+ms GET /v1/\* → {host} \w{{8}}", await screen.read_event())


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
