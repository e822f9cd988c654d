"""The real llama.cpp server with a tiny random model, as a separate process."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

REALSERVER = Path(__file__).parents[2].parent / "shared" / "realserver"
CONTEXT_TOKENS = 16_384
START_SECONDS = 60

_SERVE = """
import sys, threading
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], ["127.0.0.1"], int(sys.argv[2])
params.n_ctx, params.n_parallel, params.n_predict = int(sys.argv[3]), 1, 64
params.warmup, params.use_jinja, params.cpuparams.n_threads = False, True, 1
params.chat_template = sys.argv[4]
server = xllamacpp.Server(params)
threading.Event().wait()
"""


def make_model(directory: Path) -> Path:
    """Make a tiny random model. Almost every byte is a token, so trimtab's count is about a quarter of the model's."""
    path = directory / "tiny.gguf"
    make = [sys.executable, str(REALSERVER / "mk_gguf.py"), str(path), str(CONTEXT_TOKENS)]
    subprocess.run(make, check=True, capture_output=True)
    return path


@asynccontextmanager
async def run_llama(
    model: Path, client: aiohttp.ClientSession, template: str = "", context_tokens: int = CONTEXT_TOKENS
) -> AsyncIterator[str]:
    """Run the server. Yields its base URL.

    template: a chat template in Jinja; empty for the model's own.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = ["-c", _SERVE, str(model), str(port), str(context_tokens), template]
    with (model.parent / "server.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(sys.executable, *serve, stdout=log, stderr=log, env=os.environ)
    base = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await _is_up(client, base + "/health"):
                assert process.returncode is None
                await asyncio.sleep(0.1)
        yield base + "/v1"
    finally:
        process.kill()
        await process.wait()


async def _is_up(client: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with client.get(url) as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False
