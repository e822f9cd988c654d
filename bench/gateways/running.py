"""Targets as processes: started on their core, asked until they answer, ended with all that they started.

Law: a target that does not do what the scenario measures stops the run with an error that says why.
"""

import http.client
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.gateways.samples import Running
from bench.gateways.targets import Launch, Surroundings, Target
from bench.harness.accounts import find_family, pinned
from bench.harness.servers import HOST, stop

READY_SECONDS = 120.0
"""Chosen: LiteLLM needs ten seconds on a busy machine."""
DECISION_SECONDS = 30.0
_SHOWN_CHARS = 600


class BrokenTargetError(RuntimeError):
    """A target does not start, or does not do what is measured."""


@contextmanager
def run_upstream(command: list[str], cores: set[int]) -> Iterator[tuple[int, int]]:
    """The fake upstream: its port and its process."""
    with pinned(cores):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        yield int(process.stdout.readline() if process.stdout else b""), process.pid
    finally:
        stop(process)
        if process.stdout:
            process.stdout.close()


@contextmanager
def run_target(target: Target, place: Surroundings, cores: set[int], bodies: dict[str, Path]) -> Iterator[Running]:
    """Start the target and wait until it answers. Raises MissingPeerError and BrokenTargetError."""
    if target.prepare is None:
        yield Running(place.upstream_port, None)
        return
    place.folder.mkdir(parents=True, exist_ok=True)
    launch = target.prepare(place)
    log = place.folder / "log.txt"
    own = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB_")}
    started = time.perf_counter()
    with pinned(cores), log.open("wb") as out:
        process = subprocess.Popen(
            launch.command, env=own | dict(launch.environment), stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        port = _wait_for_answer(target, launch, process, log, bodies["small"].read_bytes())
        running = Running(port, process.pid, time.perf_counter() - started)
        if target.decides is not None:
            check_decisions(target, port, bodies["large"].read_bytes())
        yield running
    finally:
        _stop_all(process)


def check_decisions(target: Target, port: int, body: bytes) -> None:
    """Check that trimtab makes the decisions of the target on the large body; a summary may have to be written first.

    Raises BrokenTargetError if it never does.
    """
    deadline = time.perf_counter() + DECISION_SECONDS
    acted = None
    while time.perf_counter() < deadline:
        status, headers = ask(port, target.path, body)
        acted = ", ".join(item.partition(";")[0] for item in headers.get("x-trimtab-decisions", "").split(", "))
        if status == http.HTTPStatus.OK and acted == target.decides:
            return
        time.sleep(0.2)
    message = f"expected the decisions {target.decides!r}, it made {acted!r}"
    raise BrokenTargetError(message)


def ask(port: int, path: str, body: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers of a POST, header names in lower case."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30.0)
    try:
        headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-bench"}
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def _wait_for_answer(target: Target, launch: Launch, process: subprocess.Popen[bytes], log: Path, body: bytes) -> int:
    """The port, as soon as a small request is answered with 200."""
    deadline = time.perf_counter() + READY_SECONDS
    said = ""
    while time.perf_counter() < deadline and process.poll() is None:
        port = launch.port
        if launch.prints:
            found = launch.prints.search(log.read_text("utf-8", "replace"))
            port = int(found.group(1)) if found else 0
        with suppress(OSError, http.client.HTTPException):
            if port:
                status, _ = ask(port, target.path, body)
                if status == http.HTTPStatus.OK:
                    return port
                said = f"; it answered {status}"
        time.sleep(0.02)
    end = log.read_text("utf-8", "replace")[-_SHOWN_CHARS:]
    message = f"it gave no answer within {READY_SECONDS:.0f} s{said}: {end}"
    raise BrokenTargetError(message)


def _stop_all(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything that it started and left running."""
    family = find_family(process.pid)
    stop(process)
    for pid in family[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
