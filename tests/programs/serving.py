"""Runs `trimtab serve` as a separate process."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from programs.starts import start_trimtab

EXECUTED = ":"
"""For `serving`: a shell's command that does nothing. A fork shares its memory with the process that it came from."""


def own_environment() -> dict[str, str]:
    """The environment of the test, without the user's TRIMTAB_ variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB_")}


@asynccontextmanager
async def serving(*arguments: str, shell: str = "", command: str = "serve") -> AsyncIterator[tuple[Process, str]]:
    """Run the process. Yields it and its base URL with /v1, which is read from its log.

    shell: commands that the shell runs before it executes trimtab; without any, the process is a fork.
    command: `serve`, or one that takes its options.
    """
    everything = (
        command,
        "--listen",
        "127.0.0.1:0",
        "--set",
        "prices={}",  # as of an upstream that charges for tokens, although it is local
        "--set",
        "limits.max_plan_seconds=30",  # on a busy machine, work waits long for a thread
        *arguments,
    )
    if shell:
        program = ("/bin/sh", "-c", f'{shell}\nexec "$@"', "sh", sys.executable, "-m", "trimtab")
        process = await asyncio.create_subprocess_exec(*program, *everything, stderr=PIPE, env=own_environment())
    else:
        process = await start_trimtab(*everything, stderr=PIPE, env=own_environment())
    try:
        line = (await read_log(process, "listening", patience_seconds=60))[-1]
        yield process, line["url"]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def read_log(process: Process, *events: str, patience_seconds: float = 30) -> list[dict[str, Any]]:
    """Read log lines up to and including the first one with one of these events."""
    lines: list[dict[str, Any]] = []
    while not lines or lines[-1]["event"] not in events:
        lines.append(orjson.loads(await asyncio.wait_for(process.stderr.readline(), patience_seconds)))
    return lines
