"""The real llama.cpp server, as a separate process."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from bench.local.server import REALSERVER, run_server

CONTEXT_TOKENS = 16_384


def make_model(directory: Path) -> Path:
    """Make a tiny random model. Almost every byte is a token, so trimtab's count is about a quarter of the model's."""
    path = directory / "tiny.gguf"
    make = [sys.executable, str(REALSERVER / "mk_gguf.py"), str(path), str(CONTEXT_TOKENS)]
    subprocess.run(make, check=True, capture_output=True)
    return path


@asynccontextmanager
async def run_llama(model: Path, template: str = "", context_tokens: int = CONTEXT_TOKENS) -> AsyncIterator[str]:
    """Run the server. Yields its base URL.

    template: a chat template in Jinja; empty for the model's own.
    """
    with ExitStack() as stack:
        running = run_server(model, context_tokens, template=template)
        port = await asyncio.to_thread(stack.enter_context, running)
        yield f"http://127.0.0.1:{port}/v1"
