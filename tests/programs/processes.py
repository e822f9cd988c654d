"""Other people's programs, run with an environment of their own, a time limit, and an end for all their children."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what it wrote."""

    status: int
    out: str
    err: str


async def run_program(
    command: Sequence[str], home: Path, environment: Mapping[str, str], *, directory: Path, limit_seconds: float = 120
) -> Ended:
    """Run a program to its end; TimeoutError if that does not come in time. Its children end with it.

    It sees nothing of the user's: only PATH, a home that is `home`, and `environment`.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home)} | dict(environment),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit_seconds):
            out, err = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return Ended(process.returncode, out.decode(), err.decode())
