"""What the economies and a few thresholds would have cost and kept, from the recordings of this proxy.

Law: another process computes it (`trimtab replay --curve`), one at a time, from the newest recordings, within a time.
The result is kept for a while. Nothing is computed unless somebody asks.
"""

import asyncio
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import Any

import orjson

from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.config.schema import Config
from trimtab.proxy.tasks import Tasks

NEWEST = 500
"""Recordings that are replayed. Chosen: several long sessions, in less than a minute."""
MOST_SECONDS = 180.0  # chosen: with seven settings, 500 long requests take half of it on a busy machine
KEPT_SECONDS = 900.0  # chosen: it changes slowly, and costs a minute of one core
NICENESS = 10  # chosen: requests go first
_HIDDEN = {"upstream": True, "prices": True, "summary": {"upstream", "model"}}
"""Keys of a policy that name other parts of a configuration. They decide nothing here: prices are as recorded."""


@dataclass(slots=True)
class Curve:
    _answer: dict[str, Any] = field(default_factory=dict)
    _made_at: float = 0.0
    _task: asyncio.Task[None] | None = None

    def show(self, config: Config, background: Tasks) -> dict[str, Any]:
        """What is known now; begins to compute, in the background, if that is nothing, or too old.

        `state` is `off` (nothing is recorded), `running`, `ready` or `failed`.
        """
        if config.record is None:
            return {"state": "off"}
        if self._task is not None and not self._task.done():
            return {"state": "running"}
        if not self._answer or time.monotonic() - self._made_at > KEPT_SECONDS:
            self._answer = {}
            self._task = background.start(self._compute(config, str(config.record.dir)))
            return {"state": "running"}
        return self._answer

    async def _compute(self, config: Config, folder: str) -> None:
        try:
            async with asyncio.timeout(MOST_SECONDS):
                found = await _replay(config, folder)
        except (TimeoutError, OSError, orjson.JSONDecodeError):
            found = {}
        self._made_at = time.monotonic()
        is_ready = "curve" in found
        self._answer = {
            "state": "ready" if is_ready else "failed",
            "at": time.time(),
            "requests": found["input"]["requests"] if is_ready else 0,
            "points": found["curve"] if is_ready else [],
            "notes": found["notes"] if is_ready else [],
        }


async def _replay(config: Config, folder: str) -> dict[str, Any]:
    """The report of the other process; without a curve if it has failed."""
    arguments = ("replay", folder, "--curve", "--json", "--newest", str(NEWEST), "--config", "/dev/stdin")
    # A file, because an event loop may connect a process by sockets, which cannot be opened by a path.
    with TemporaryFile() as policies:
        policies.write(orjson.dumps(_write_policies(config)))
        policies.seek(0)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "trimtab",
            *arguments,
            stdin=policies,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    try:
        os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        written, _ = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    found: dict[str, Any] = orjson.loads(written) if process.returncode == 0 else {}
    return found


def _write_policies(config: Config) -> dict[str, Any]:
    def write(policy: PolicyConfig) -> dict[str, Any]:
        return policy.model_dump(mode="json", exclude_unset=True, exclude=_HIDDEN)  # type: ignore[arg-type]

    return {"defaults": write(config.defaults), "models": [write(model) for model in config.models]}
