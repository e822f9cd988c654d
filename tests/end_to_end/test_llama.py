"""A real upstream: llama.cpp's own server, whose window is many times smaller than the session."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import orjson
import pytest
from sessions import make_session, requests_of

pytest.importorskip("xllamacpp", reason="the llama.cpp server (xllamacpp) is not installed")

REALSERVER = Path(__file__).parents[2].parent / "shared" / "realserver"
SERVER_CONTEXT_TOKENS = 16_384

pytestmark = [
    pytest.mark.recorded,
    pytest.mark.skipif(not REALSERVER.is_dir(), reason="the server's scripts (../shared/realserver) are not here"),
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny random model, made on the spot. Its tokens are nearly bytes, so four of them make one of ours."""
    path = tmp_path / "tiny.gguf"
    make = [sys.executable, str(REALSERVER / "mk_gguf.py"), str(path), str(SERVER_CONTEXT_TOKENS)]
    subprocess.run(make, check=True, capture_output=True)
    return path


@pytest.fixture
async def llama(model: Path, tmp_path: Path, client: aiohttp.ClientSession) -> AsyncIterator[str]:
    """The server's base URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [str(REALSERVER / "llama_server.py"), str(model), str(port), str(SERVER_CONTEXT_TOKENS)]
    with (tmp_path / "server.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(sys.executable, *serve, stdout=log, stderr=log, env=os.environ)
    base = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(60):
            while not await answers(client, base + "/health"):
                assert process.returncode is None
                await asyncio.sleep(0.1)
        yield base + "/v1"
    finally:
        process.kill()
        await process.wait()


async def answers(client: aiohttp.ClientSession, url: str) -> bool:
    """Whether a server answers with success."""
    try:
        async with client.get(url) as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


async def ask(client: aiohttp.ClientSession, url: str, messages: list[dict[str, object]]) -> tuple[int, dict]:
    body = {"model": "tiny", "messages": messages, "max_tokens": 8}
    async with client.post(url + "/chat/completions", data=orjson.dumps(body)) as response:
        return response.status, orjson.loads(await response.read())


async def test_session_finishes_where_the_server_alone_refuses_it(llama, client, start_proxy):
    """More than 80k tokens, many times the window: every request is answered, and the server refuses them directly."""
    proxy = await start_proxy(
        f"upstream.base_url={llama}",
        "defaults.context_window=3400",
        "defaults.completion_reserve=100",
        "defaults.max_tool_result_tokens=500",
        "defaults.summary.max_tokens=100",
        "defaults.summary.min_steps=3",
    )
    session = make_session(60, result_words=2400)
    original_tokens = 0
    for messages in requests_of(session):
        async with client.post(
            proxy.url + "/v1/chat/completions",
            data=orjson.dumps({"model": "tiny", "messages": messages, "max_tokens": 8}),
        ) as response:
            answer = orjson.loads(await response.read())
            assert (response.status, answer.get("error")) == (200, None)
        tokens = dict(item.split("=") for item in response.headers["x-trimtab-tokens"].split(", "))
        original_tokens = int(tokens["original"])
        assert answer["usage"]["prompt_tokens"] <= SERVER_CONTEXT_TOKENS
    assert original_tokens > 80_000
    status, answer = await ask(client, llama, session["messages"][:-1])
    assert (status, answer["error"]["type"]) == (400, "exceed_context_size_error")
    async with client.get(proxy.url + "/metrics") as metrics:
        text = (await metrics.read()).decode()
    made = next(line for line in text.splitlines() if 'trimtab_summaries_total{model="tiny",result="made"}' in line)
    assert float(made.split()[-1]) >= 5
