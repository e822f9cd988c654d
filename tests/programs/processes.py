"""Runs other programs with a separate environment and a time limit, and ends all their child processes."""

import asyncio
import os
import signal
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from programs.starts import Forked


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit status of a program, and its output."""

    status: int
    out: str
    err: str


async def run_program(
    command: Sequence[str], home: Path, environment: Mapping[str, str], *, directory: Path, limit_seconds: float = 120
) -> Ended:
    """Run a program until it ends, then kill its child processes. Raises TimeoutError after the limit.

    The program sees nothing of the user's environment: it gets only PATH, `home` as its home directory, and
    `environment`.
    """
    everything = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home)} | dict(environment)
    streams = {"stdin": DEVNULL, "stdout": PIPE, "stderr": PIPE}
    with patch.object(subprocess, "Popen", Forked):
        process = await asyncio.create_subprocess_exec(
            *command, **streams, cwd=directory, env=everything, start_new_session=True
        )
    try:
        async with asyncio.timeout(limit_seconds):
            out, err = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return Ended(process.returncode, out.decode(), err.decode())
