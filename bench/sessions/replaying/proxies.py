"""The proxies as processes: trimtab as a user starts it, and Headroom from its own environment.

Law: loopback only; each is started for one upstream and is ready when `start` returns.
"""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.harness.servers import HOST, TRIMTAB, find_free_port, start_proxy, stop, wait_until_ready
from bench.peers.environments import OFFLINE, write_vocabulary
from bench.sessions.replaying.clocked import FileClock, takes_clock
from bench.sessions.replaying.replay import Running, Start

CLOCKED = "bench.sessions.replaying.clocked"
OWN_STORE = "sqlite:///{folder}/summaries.sqlite"
HEADROOM_READY_SECONDS = 90.0
_HEADROOM_OPTIONS = (
    "--disable-kompress", "--no-rate-limit", "--no-cache", "--no-subscription-tracking", "--no-telemetry",
    "--stateless",
)  # fmt: skip
"""Its compressor model would be downloaded; its rate limit, answer cache and telemetry must not affect a replay."""


def make_trimtab(settings: Sequence[str], *, is_clocked: bool = False) -> Start:
    """Start `trimtab serve`. Settings are written KEY=VALUE; `{folder}` in them is the lane's own folder.

    If `is_clocked`, it gets a clock that the replay moves, provided that this version of trimtab takes one.
    """

    def start(upstream_port: int, folder: Path) -> Running:
        port = find_free_port()
        options = [part for setting in settings for part in ("--set", setting.replace("{folder}", str(folder)))]
        clock = FileClock(folder / "clock") if is_clocked and takes_clock() else None
        if clock is not None:
            clock.advance(0.0)
        program = TRIMTAB if clock is None else (sys.executable, "-m", CLOCKED, str(clock.file))
        process = start_proxy(port, "--upstream", f"http://{HOST}:{upstream_port}/v1", *options, program=program)
        wait_until_ready(port, process)
        return Running(process, port, None if clock is None else clock.advance)

    return start


def make_headroom(program: Path, mode: str) -> Start:
    """Start Headroom's proxy in a mode: cache or token."""

    def start(upstream_port: int, folder: Path) -> Running:
        port = find_free_port()
        upstream = f"http://{HOST}:{upstream_port}/v1"
        where = ("--host", HOST, "--port", str(port), "--openai-api-url", upstream, "--mode", mode)
        own = {"HOME": str(folder), "TIKTOKEN_CACHE_DIR": str(write_vocabulary(folder))}
        process = subprocess.Popen(
            [str(program), "proxy", *where, *_HEADROOM_OPTIONS],
            env={**os.environ, **OFFLINE, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _wait_for_health(port, process)
        return Running(process, port)

    return start


@contextmanager
def run_redis() -> Iterator[str]:
    """A real redis-server on a free port; yields its URL. Raises FileNotFoundError if it is not installed."""
    port = find_free_port()
    command = ["redis-server", "--port", str(port), "--bind", HOST, "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        for line in process.stdout or ():
            if b"Ready to accept connections" in line:
                break
        yield f"redis://{HOST}:{port}/0"
    finally:
        stop(process)
        if process.stdout:
            process.stdout.close()


def _wait_for_health(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + HEADROOM_READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=5.0):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    stop(process)
    message = f"the proxy at port {port} did not become ready"
    raise RuntimeError(message)
