"""Keys and texts are planted everywhere. They appear only where they belong: in requests to the upstream."""

import asyncio
import signal
from asyncio.subprocess import Process
from base64 import b64encode
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from programs.serving import serving
from support.client import SMALL, ask_raw
from support.command_line import run_trimtab
from support.sessions import make_session
from upstreams.forward_proxy import run_forward_proxy
from upstreams.recording import break_off, error

KEY = "sk-PLANTED-KEY"
TEXT = "PLANTED TEXT"
CONFIG = f"""
upstream: {{api_key: {KEY}-upstream}}
client_keys: [{KEY}-client, {KEY}-other]
admin_token: {KEY}-admin
"""
HEADERS = {
    "Authorization": f"Bearer {KEY}-client",
    "X-Odd": TEXT,
    "User-Agent": TEXT,
    "Cookie": f"a={KEY}",
}


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """A function that runs a process with the planted configuration, and all its files in the test's folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "planted.yaml").write_text(CONFIG)

    def run(upstream_url: str, *settings: str) -> AbstractAsyncContextManager[Any]:
        options = [part for setting in (*SMALL, *settings) for part in ("--set", setting)]
        return serving("--config", str(tmp_path / "planted.yaml"), "--upstream", upstream_url, *options)

    return run


async def stop(process: Process) -> bytes:
    """Stop the process, and return everything that it wrote to standard error. Its status must be 0."""
    process.send_signal(signal.SIGTERM)
    said = await asyncio.wait_for(process.stderr.read(), 30)
    assert await process.wait() == 0
    return said


def planted_session(steps: int) -> bytes:
    """A long session with planted text in every kind of message, and in the tools."""
    session = make_session(steps)
    messages = session["messages"][:-1]
    for message in messages:
        message["content"] = f"{TEXT} {message['content']}"
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = orjson.dumps({"path": TEXT}).decode()
    session["tools"][0]["function"]["description"] = TEXT
    return orjson.dumps({"model": "m", "user": TEXT, "messages": messages, "tools": session["tools"]})


async def read_pages(client: aiohttp.ClientSession, url: str) -> bytes:
    """Trimtab's own pages with their headers, including metrics and refusals."""
    pages, root = b"", url.removesuffix("/v1")
    for path in ("/metrics", "/trimtab/health", "/trimtab/ready", f"/trimtab/{KEY}", "/trimtab/api/models"):
        for key in (f"{KEY}-admin", f"{KEY}-wrong"):
            async with client.get(root + path, headers={"Authorization": f"Bearer {key}"}) as response:
                pages += await response.read() + str(response.headers).encode()
    return pages


def find_planted(said: bytes) -> list[bytes]:
    """The lines that contain anything planted."""
    return [line for line in said.splitlines() if b"PLANTED" in line]


async def ask_everything(client: aiohttp.ClientSession, url: str) -> list[int]:
    """Send planted requests of every kind. Returns the statuses. Trimtab's own errors must show nothing planted."""
    bodies = [
        planted_session(2),
        planted_session(30),
        b'{"messages": ' + TEXT.encode(),
        orjson.dumps({"model": f"{KEY}-client", "messages": [{"role": TEXT, "content": {TEXT: TEXT}}, {"role": 5}]}),
        orjson.dumps({"messages": [{"role": "user", "content": TEXT * 20_000}]}),
        b"\xff" + TEXT.encode(),
    ]
    statuses = []
    asked = [("/v1/chat/completions", body, {}) for body in bodies]
    asked += [(path, bodies[2], {}) for path in (f"/v1/x?key={KEY}&q=PLANTED", f"/v1/files/{KEY}", f"/{KEY}/v1")]
    asked += [("/v1/chat/completions", bodies[0], {"x-trimtab-profile": TEXT})]
    asked += [("/v1/chat/completions", bodies[0], {"Authorization": f"Bearer {KEY}-wrong"})]
    for path, body, extra in asked:
        try:
            async with client.post(url.removesuffix("/v1") + path, data=body, headers=HEADERS | extra) as response:
                answer = await response.read()
        except aiohttp.ClientError:
            continue
        statuses.append(response.status)
        if b"trimtab_error" in answer or b"context_length_exceeded" in answer:
            assert find_planted(answer + str(response.headers).encode()) == []
    return statuses


async def refuse(recorded, _request):
    """An upstream that quotes the request in its error."""
    return error(400, message=f"no: {recorded.body[:200]!r}", type="x", code=KEY)


async def vanish(_recorded, request):
    """An upstream that disconnects before it answers."""
    request.transport.abort()
    return web.Response()


async def test_a_process_tells_nothing_planted(serve, tmp_path, client, upstream):
    """Log, metrics, errors and files have nothing planted, whatever the upstream does. Each log line is JSON."""
    statuses = []
    async with serve(upstream.url) as (process, url):
        for answer in (upstream.answer, refuse, vanish, break_off):
            upstream.answer = answer
            statuses.append(await ask_everything(client, url))
        told = await read_pages(client, url)
        for broken in (
            b"GET /%b HTTP/9\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\x00\r\n\r\n",
        ):
            await ask_raw(url, broken % KEY.encode())
        said = await stop(process)
    assert all({400, 401} <= set(each) for each in statuses)
    assert [200 in each for each in statuses] == [True, False, False, False]
    assert find_planted(told) == []
    assert find_planted(said) == []
    assert len([orjson.loads(line) for line in said.splitlines()]) > sum(map(len, statuses)) / 2
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file.name != "planted.yaml"]
    stores = {file.name for file in files if file.suffix == ".sqlite3"}
    assert stores == {"statistics.sqlite3", "events.sqlite3", "summaries.sqlite3"}
    assert [file.name for file in files if b"PLANTED" in file.read_bytes()] == []


async def test_an_upstream_that_cannot_be_reached_tells_nothing_planted(serve, client):
    """The same holds for a store that cannot be reached and has a password in its URL."""
    store = f"store=redis://user:{KEY}@127.0.0.1:9/0"
    async with serve("http://127.0.0.1:9/v1", store) as (process, url):
        statuses = await ask_everything(client, url)
        told = await read_pages(client, url)
        said = await stop(process)
    assert {502, 401} <= set(statuses)
    assert find_planted(told + said) == []


@pytest.mark.parametrize(("scheme", "wants"), [("http", None), ("https", b"other")], ids=["lets in", "refuses"])
async def test_a_proxys_password_is_told_to_nobody_else(wants, scheme, serve, client, upstream, monkeypatch):
    """Log, errors and files do not have it, and the upstream does not get it, whether the proxy accepts it or not."""
    async with run_forward_proxy() as forward:
        forward.wants = wants
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://me:{KEY}@{forward.address}")
        base_url = upstream.url.replace("127.0.0.1", "upstream.test").replace("http", scheme)
        async with serve(base_url) as (process, url):
            statuses = await ask_everything(client, url)
            told = await read_pages(client, url)
            said = await stop(process)
        assert any(b"Proxy-Authorization: Basic " in head for head in forward.heads)
    assert (502 in statuses) is (wants is not None)
    password = b64encode(f"me:{KEY}".encode())[:16]
    assert not [line for line in (told + said).splitlines() if b"PLANTED" in line or password in line]
    assert not [recorded for recorded in upstream.requests if recorded.header("Proxy-Authorization")]


@pytest.mark.parametrize(
    "text",
    [
        CONFIG + f"upstreams: {{x: {{base_url: http://x, proxy: 'http://me:{KEY}@h:x'}}}}",
        CONFIG + f"upstreams: {{x: {{base_url: http://x, proxy: 'socks5://me:{KEY}'}}}}",
        CONFIG + f"nonsense: {KEY}",
        CONFIG.replace("[", "[a b, "),
        CONFIG.replace("admin_token: ", "admin_token: *"),
        CONFIG + f"store: redis://user:{KEY}@h:x/0",
        CONFIG + "mode: maybe",
        CONFIG + f"\x00{KEY}",
        CONFIG + "listen: [",
        CONFIG,
    ],
    ids=repr,
)
def test_commands_tell_nothing_planted(text, tmp_path):
    """The commands are `check`, and `compact` of a planted body, with a valid or invalid planted configuration."""
    file, body = tmp_path / "planted.yaml", tmp_path / "body.json"
    file.write_text(text)
    body.write_bytes(b'{"messages": [{"role": "user", "content": "' + TEXT.encode())
    for command in (("check", file), ("compact", "--config", file, body)):
        done = run_trimtab(*command)
        assert done.exit_code in {0, 1, 2}
        assert isinstance(done.exception, SystemExit | None)
        assert find_planted(done.output.encode()) == []
