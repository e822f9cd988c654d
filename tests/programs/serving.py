"""`trimtab serve` as a process of its own."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson


def own_environment() -> dict[str, str]:
    """The test's environment, without the user's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB_")}


@asynccontextmanager
async def serving(*arguments: str, shell: str = "") -> AsyncIterator[tuple[Process, str]]:
    """The process and its address with /v1, read from its log; `shell` is run before it."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        f'{shell}\nexec "$@"',
        "sh",
        sys.executable,
        "-m",
        "proxy",
        "serve",
        "--listen",
        "127.0.0.1:0",
        *arguments,
        stderr=PIPE,
        env=own_environment(),
    )
    try:
        line = orjson.loads(await asyncio.wait_for(process.stderr.readline(), 30))
        assert line["event"] == "listening"
        yield process, line["url"]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def read_log(process: Process, *events: str) -> list[dict[str, Any]]:
    """The next lines of its log, up to the first that is one of these events."""
    lines: list[dict[str, Any]] = []
    while not lines or lines[-1]["event"] not in events:
        lines.append(orjson.loads(await asyncio.wait_for(process.stderr.readline(), 10)))
    return lines
