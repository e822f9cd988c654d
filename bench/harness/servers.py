"""The processes that the benchmarks start: their own upstream, and the proxy as a user starts it.

Law: every process ends with the block that started it. Loopback only.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

HOST = "127.0.0.1"
TRIMTAB = (str(Path(sys.executable).with_name("trimtab")),)
READY_SECONDS = 60.0
"""Chosen: a proxy that is not ready after this time has failed."""
POLL_SECONDS = 0.002
STOP_SECONDS = 10.0
_DATA_DIRECTORY = tempfile.TemporaryDirectory(prefix="trimtab-bench-")
"""Its own store, not the user's: summaries that one run has paid for must not be free in the next."""
_READY_REQUEST = b"GET /trimtab/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

PRICES = "prices={input: 1, cached_input: 0.1, output: 4}"
"""The upstreams here are local, so trimtab would price tokens by time. Source: usual ratios of list prices."""


def find_free_port() -> int:
    """A port on which nothing listens at this moment."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
    return port


def start_proxy(
    port: int, *options: str, program: Sequence[str] = TRIMTAB, log: int | BinaryIO = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """`trimtab serve` on a port, not ready yet. Its log goes to `log`; TRIMTAB_* variables are not passed on.

    Its prices are PRICES, unless an option sets others.
    """
    command = [*program, "serve", "--listen", f"{HOST}:{port}", "--set", PRICES, *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB_")}
    environment["XDG_DATA_HOME"] = _DATA_DIRECTORY.name
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)


def wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return as soon as GET /trimtab/ready answers 200. Raises RuntimeError if that never happens."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            message = f"the proxy ended with status {process.returncode} before it was ready"
            raise RuntimeError(message)
        if _is_ready(port):
            return
        time.sleep(POLL_SECONDS)
    message = f"the proxy was not ready within {READY_SECONDS} seconds"
    raise RuntimeError(message)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process, by force if it does not end by itself."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def run_proxy(upstream_port: int, *settings: str) -> Iterator[int]:
    """A ready proxy in front of a local upstream; yields its port. `settings` are written DOTTED.KEY=VALUE."""
    port = find_free_port()
    options = [part for setting in settings for part in ("--set", setting)]
    process = start_proxy(port, "--upstream", f"http://{HOST}:{upstream_port}/v1", *options)
    try:
        wait_until_ready(port, process)
        yield port
    finally:
        stop(process)


@contextmanager
def run_upstream(*arguments: str, module: str = "bench.harness.upstream") -> Iterator[int]:
    """An upstream in its own process, listening; yields its port."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        # The upstream prints its port as its first and only line, once it listens.
        yield int(process.stdout.readline() if process.stdout else b"")
    finally:
        stop(process)
        if process.stdout:
            process.stdout.close()


def _is_ready(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as connection:
            connection.sendall(_READY_REQUEST)
            return connection.recv(64).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False
