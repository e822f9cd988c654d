"""`trimtab serve` as a process: start, service, drain, and error messages."""

import asyncio
import os
import pty
import re
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp
import orjson
import pytest
from programs.serving import own_environment, read_log, serving
from programs.starts import start_trimtab
from support.client import CHAT, post
from upstreams.recording import event


async def test_streams_finish_before_the_process_ends(client, upstream):
    """SIGTERM: no new connections, the stream in flight ends normally, and the exit status is 0."""
    release = asyncio.Event()

    async def hold(_recorded, request):
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("one"))
        await release.wait()
        await response.write(event("two"))
        await response.write_eof()
        return response

    upstream.answer = hold
    async with serving("--upstream", upstream.url, "--set", "store=memory") as (process, url):
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        async with client.post(url + "/chat/completions", json=body) as response:
            assert await response.content.readany() == event("one")
            process.send_signal(signal.SIGTERM)
            lines = [orjson.loads(await asyncio.wait_for(process.stderr.readline(), 30))]
            assert lines[0]["event"] == "draining"
            await refuses_connections(url)
            release.set()
            assert await response.content.read() == event("two")
        assert await asyncio.wait_for(process.wait(), 30) == 0
        logged = [orjson.loads(line) for line in (await process.stderr.read()).splitlines()]
        assert [(line["event"], line["outcome"]) for line in logged] == [("request", "unchanged")]


@pytest.mark.parametrize(
    ("first", "second", "status"), [(signal.SIGTERM, signal.SIGINT, 130), (signal.SIGINT, signal.SIGTERM, 143)]
)
async def test_a_second_signal_ends_at_once(first, second, status, upstream):
    """The stream in flight is reset, so it cannot be taken for complete. The status names the signal. No traceback."""

    async def hang(_recorded, request):
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("half"))
        await asyncio.Event().wait()

    upstream.answer = hang
    body = b'{"messages":[{"role":"user","content":"hi"}],"stream":true}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with serving("--upstream", upstream.url, "--set", "store=memory") as (process, url):
        host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head + body)
        await reader.readuntil(b"half")
        process.send_signal(first)
        assert [line["event"] for line in await read_log(process, "draining")] == ["draining"]
        process.send_signal(second)
        assert await asyncio.wait_for(process.wait(), 30) == status
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        said = await process.stderr.read()
    (line,) = map(orjson.loads, said.splitlines())
    assert (line["event"], line["signal"], line["requests"]) == ("ended_at_once", second.name, 1)


async def refuses_connections(url: str) -> None:
    """Wait until new connections are refused."""
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url + "/models"):
                    await asyncio.sleep(0)
            except aiohttp.ClientConnectorError:
                return


MALFORMED = (
    b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer PLANTED\x00\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer PLANTED" + b"a" * 70_000 + b"\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdePLANTED secret\r\n",
    b"GET PLANTED\r\n\r\n",
)


async def test_what_cannot_be_read_is_not_quoted_in_the_log(upstream):
    """Key and text of a malformed request are not in standard error, and each of its lines is JSON."""
    async with serving("--upstream", upstream.url, "--set", "store=memory") as (process, url):
        host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
        for request_bytes in MALFORMED:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request_bytes)
            assert re.search(rb" (400|431) ", await asyncio.wait_for(reader.readline(), 30))
            writer.close()
            await writer.wait_closed()
        process.send_signal(signal.SIGTERM)
        logged = await asyncio.wait_for(process.stderr.read(), 30)
    assert b"PLANTED" not in logged
    assert all(orjson.loads(line) for line in logged.splitlines())


async def test_the_soft_limit_of_files_is_raised_to_the_hard_one(upstream):
    """Each connection needs a file descriptor."""
    shell = "ulimit -S -n 40; ulimit -H -n 80"
    async with serving("--upstream", upstream.url, "--set", "store=memory", shell=shell) as (process, _):
        assert re.search(r"Max open files +80 +80 ", read_limits(process.pid))


def read_limits(process_id: int) -> str:
    return Path(f"/proc/{process_id}/limits").read_text(encoding="ascii")


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("serve", b"trimtab.proxy.http.errors"),
        ("count", b"trimtab.proxy.cli.main"),
    ],
)
async def test_an_interrupt_while_it_loads_ends_it_quietly(command, module):
    """Status 130 as in shells, and no traceback: during any import, and before the event loop handles signals."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-X", "importtime", "-m", "trimtab", command, stdin=PIPE, stdout=PIPE, stderr=PIPE,
        env=own_environment() | {"TRIMTAB_LISTEN": "127.0.0.1:0"},
    )  # fmt: skip
    try:
        while not (line := await asyncio.wait_for(process.stderr.readline(), 30)).endswith(b" " + module + b"\n"):
            assert line
        process.send_signal(signal.SIGINT)
        written, said = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert [line for line in said.splitlines() if not line.startswith(b"import time:")] == []
    assert (process.returncode, written) == (130, b"")


CLEAR, COLOURS = "\r\x1b[K", re.compile(r"\x1b\[[0-9;]*m")


async def test_a_live_line_shows_what_is_saved_and_never_mixes_with_the_log(client, upstream):
    """Each log line clears it first. Text of a client never controls the terminal."""
    ours, theirs = pty.openpty()
    screen = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(screen), os.fdopen(ours, "rb", buffering=0)
    )
    command = ("serve", "--listen", "127.0.0.1:0", "--upstream", upstream.url, "--set", "store=memory")
    process = await start_trimtab(*command, stderr=theirs, env=own_environment() | {"TERM": "xterm"})
    os.close(theirs)
    try:
        async with asyncio.timeout(120):
            greeting = (await screen.readuntil(b"/trimtab/\r\n")).decode()
            url = re.search(r" listening url=(\S+)/v1 ", COLOURS.sub("", greeting))[1]
            assert f"    export OPENAI_BASE_URL={url}/v1\r\n" in greeting
            for number in range(1, 4):
                body = CHAT | {"model": "gpt-4o\x1b[2J\r\nfake line \u202e\x9b"}
                await post(client, url + "/v1/chat/completions", body, Connection="close")
                shown = await screen.readuntil(f"{CLEAR}{number} request".encode())
                (line,) = [line for line in shown.decode().split("\r\n") if " POST " in line]
                before, clear, rest = line.rpartition(CLEAR)
                assert clear, before
                assert COLOURS.sub("", rest).isprintable()
                assert re.match(r"\d\d:\d\d:\d\d gpt-4o\\x1b\[2J", COLOURS.sub("", rest))
            process.terminate()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        transport.close()
