"""The gateways that are measured: trimtab with a question's configuration, and the bare proxy; each on its own core.

Law: a gateway ends with the block that started it; an error of a gateway ends the run.
"""

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench.harness.accounts import find_family, pinned, read_resident_mb, read_thread_seconds, share_cores
from bench.harness.native import find_native
from bench.harness.servers import HOST, READY_SECONDS, find_free_port, start_proxy, stop, wait_until_ready

_TIMEOUT_SECONDS = 120.0
BARE = "bare aiohttp"
WHOLE = "trimtab, nothing to cut"
CUT = "trimtab, window of 128,000"
SETTINGS = {
    WHOLE: ("defaults.context_window=20000000",),
    CUT: ("defaults.context_window=128000",),
}


@dataclass(frozen=True, slots=True)
class Turn:
    """The cost of one request: the gateway's processor time, and the client's waiting time."""

    processor_ms: float
    passed_ms: float


class Gateway:
    """A running gateway, with one kept connection to it."""

    def __init__(self, name: str, port: int, pid: int) -> None:
        self.name = name
        self.port = port
        self._pids = find_family(pid)
        self._connection = http.client.HTTPConnection(HOST, port, timeout=_TIMEOUT_SECONDS)

    def ask(self, body: bytes, credential: str = "Bearer sk-bench") -> Turn:
        """Send one request. Raises RuntimeError unless the status is 200."""
        headers = {"Content-Type": "application/json", "Authorization": credential}
        used, started = read_thread_seconds(self._pids), time.perf_counter()
        self._connection.request("POST", "/v1/chat/completions", body, headers)
        answer = self._connection.getresponse()
        said = answer.read()
        passed = time.perf_counter() - started
        if answer.status != http.HTTPStatus.OK:
            message = f"{self.name} answered {answer.status}: {said[:300]!r}"
            raise RuntimeError(message)
        return Turn((read_thread_seconds(self._pids) - used) * 1000, passed * 1000)

    def read_memory_mb(self) -> float:
        """Resident megabytes of all its processes."""
        return read_resident_mb(self._pids)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def run_upstream() -> Iterator[int]:
    """Run the fake upstream; yields its port."""
    with pinned(share_cores()[1]):
        process = subprocess.Popen(find_native("upstream"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        yield int(process.stdout.readline() if process.stdout else b"")
    finally:
        stop(process)
        if process.stdout:
            process.stdout.close()


@contextmanager
def run_gateway(name: str, upstream_port: int, settings: Sequence[str] = ()) -> Iterator[Gateway]:
    """Run the gateway of this name; yields it when it is ready. `settings` are additional ones of trimtab."""
    port = find_free_port()
    with pinned(share_cores()[0]):
        process = _start_bare(port, upstream_port) if name == BARE else _start_own(name, port, upstream_port, settings)
    try:
        _wait(name, port, process)
        gateway = Gateway(name, port, process.pid)
        yield gateway
        gateway.close()
    finally:
        stop(process)


def _start_bare(port: int, upstream_port: int) -> subprocess.Popen[bytes]:
    where = ("--port", str(port), "--upstream", f"http://{HOST}:{upstream_port}")
    return subprocess.Popen([sys.executable, "-m", "bench.harness.bare_proxy", *where], stdin=subprocess.DEVNULL)


def _start_own(name: str, port: int, upstream_port: int, settings: Sequence[str]) -> subprocess.Popen[bytes]:
    chosen = ("store=memory", *SETTINGS[name], *settings)
    options = [part for setting in chosen for part in ("--set", setting)]
    return start_proxy(port, "--upstream", f"http://{HOST}:{upstream_port}/v1", *options)


def _wait(name: str, port: int, process: subprocess.Popen[bytes]) -> None:
    if name != BARE:
        wait_until_ready(port, process)
        return
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection(HOST, port, timeout=5.0)
        try:
            connection.request("GET", "/v1/models")
            connection.getresponse().read()
        except OSError:
            time.sleep(0.01)
        else:
            return
        finally:
            connection.close()
    message = "the bare proxy did not start"
    raise RuntimeError(message)
