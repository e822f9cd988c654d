"""Runs jobs in forked processes, a few at a time. A job that does not get on is ended, with all that it started."""

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

Job = TypeVar("Job")
WORKERS, MOST = 2, 8
"""Processes at a time. One that waits gives its place to another, up to MOST processes."""
WAITING_SECONDS = 5.0
"""Time without a finished test after which a process is taken to wait."""
CPU_SECONDS = 10
"""Processor time that one test may take. Chosen: several times what the slowest takes without a mutation."""
SILENT_SECONDS = 90.0
"""Time without a finished test after which a job waits for something that never comes. Chosen: on a busy machine, a
test that waits 30 s for a deadline of its own is not yet at its end."""
MEMORY_BYTES = 3 * 1024**3
BY_TIME = "time"
"""The result of a job that was ended."""


@dataclass(slots=True)
class _Running:
    pid: int
    pipe: int
    heard_at: float
    told: bytes = b""


def run_forked(jobs: Iterable[Job], work: Callable[[Job, Callable[[], None]], str]) -> Iterator[tuple[Job, str]]:
    """Do each job in a process of its own, and yield its result as soon as it is there.

    `work` returns the result, and calls its second argument before each test. The result is `time` for a job that takes
    too long, and `died` for one whose process ended otherwise.
    """
    left, running = iter(jobs), list[tuple[Job, _Running]]()
    while True:
        while _has_place(running) and (job := next(left, None)) is not None:
            running.append((job, _start(job, work)))
        if not running:
            return
        select.select([each.pipe for _, each in running], [], [], 1.0)
        for job, each in list(running):
            result = _listen(each)
            if result is not None:
                running.remove((job, each))
                yield job, result


def _has_place(running: Sequence[tuple[Job, _Running]]) -> bool:
    recent = time.monotonic() - WAITING_SECONDS
    return len(running) < MOST and sum(each.heard_at > recent for _, each in running) < WORKERS


def _start(job: Job, work: Callable[[Job, Callable[[], None]], str]) -> _Running:
    pipe, end = os.pipe()
    os.set_blocking(pipe, False)
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(end)
        return _Running(pid, pipe, time.monotonic())
    try:
        os.setsid()
        be_quiet()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))

        def begin_test() -> None:
            os.write(end, b".")
            limit = int(time.process_time()) + CPU_SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))

        os.write(end, b"\n" + work(job, begin_test).encode())
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process ends here
        os.write(end, b"\n" + repr(error).encode()[:500])
    finally:
        os._exit(0)


def be_quiet() -> None:
    """Print nothing from now on."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


def _listen(each: _Running) -> str | None:
    """The result of a job, if there is one; an ended process leaves nothing behind."""
    try:
        while read := os.read(each.pipe, 65536):
            each.told, each.heard_at = each.told + read, time.monotonic()
        is_late = False
    except BlockingIOError:
        is_late = time.monotonic() - each.heard_at > SILENT_SECONDS
        if not is_late:
            return None
    os.killpg(each.pid, signal.SIGKILL)
    os.close(each.pipe)
    _, status = os.waitpid(each.pid, 0)
    if is_late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return BY_TIME
    _, told, result = each.told.partition(b"\n")
    return result.decode() if told else "died"
