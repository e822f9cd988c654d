"""The supervisor: counts and starts the workers, restarts dead ones, and passes signals on.

Law: it has no event loop, no thread and no request, so it may fork at any time, and no request can break it. It waits
only for signals and for its workers. If the first worker cannot start, the configuration or the machine is at fault:
that is logged once, and the supervisor ends. Later deaths lead to restarts.
A worker that dies once comes back at once; one that keeps dying does not keep the machine busy.
"""

import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any

import msgspec

from trimtab.proxy.config.schema import MIN_MEMORY_BYTES, Config
from trimtab.proxy.server.workers.worker import LEAVING, READY, SharedResources, Worker
from trimtab.proxy.tasks import find_pause

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # Quota and period in microseconds. Source: Linux, Control Group v2.


def count_workers(config: Config, quota_file: Path = CPU_QUOTA) -> int:
    """The configured number; for `auto`, one for each core, but no more than the memory allows."""
    if config.workers != "auto":
        return config.workers
    return max(1, min(count_cores(quota_file), config.limits.max_memory_bytes // MIN_MEMORY_BYTES))


def count_cores(quota_file: Path = CPU_QUOTA) -> int:
    """Cores that this process may run on, within its processor quota; a fraction counts as a whole core."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        cores = os.cpu_count() or 1
    with suppress(OSError, ValueError, ZeroDivisionError):  # no such file, or the word `max`
        quota, period = map(int, quota_file.read_text("ascii").split())
        cores = min(cores, ceil(quota / period))
    return max(cores, 1)


HEALTHY_SECONDS = 10.0  # Then a worker's end is the first in a row. Chosen: several times its start.
# Chosen: a pause doubles from the first to the longest, which still brings service back within a minute.
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0


class Restarts(msgspec.Struct):
    """The deaths of one worker: `total`, and how many came soon after a start, `in_a_row`."""

    total: int = 0
    in_a_row: int = 0

    def note(self, lived_seconds: float) -> float:
        """Note a death; return the seconds to wait before the worker is started again."""
        self.total += 1
        self.in_a_row = 1 if lived_seconds >= HEALTHY_SECONDS else self.in_a_row + 1
        if self.in_a_row == 1:
            return 0.0
        return find_pause(self.in_a_row - 1, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)


END_AT_ONCE = signal.SIGQUIT
"""Tells a worker to reset its connections and end. Not SIGTERM, which may arrive twice: from systemd and from us."""
SLACK_SECONDS = 10.0  # Time that workers get after the drain before they are killed. Chosen: to close stores and calls.
LAST_SECONDS = 1.0  # Time to reset connections after a second signal. Chosen: resetting takes milliseconds.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KILLED = 128  # The exit status after a signal is this plus the signal's number. Source: the convention of POSIX shells.


class Program(msgspec.Struct, frozen=True):
    """What workers run. reload: returns whether workers must reload, too; must not raise. tell_ready: called once."""

    reload: Callable[[], bool]
    drain_seconds: Callable[[], float]
    tell_ready: Callable[[], None]


class _Place(msgspec.Struct):
    """A worker, also while it is not running. pid: 0 then. generation: reloads before its start.

    due_at: when it is to be started, by the monotonic clock; None for never.
    """

    number: int
    pid: int = 0
    line: socket.socket | None = None
    is_ready: bool = False
    started_at: float = 0.0
    due_at: float | None = None
    generation: int = 0
    restarts: Restarts = msgspec.field(default_factory=Restarts)


class Supervisor:
    """Runs the workers of a program. No other code in the process may wait for children or handle signals."""

    def __init__(self, shared: SharedResources, program: Program, log: Any) -> None:
        self._shared = shared
        self._program = program
        self._log = log
        self._places = [_Place(number) for number in range(1, shared.count + 1)]
        self._signals: list[int] = []
        self._wake, self._woken = socket.socketpair()
        self._generation = 0
        self._has_begun = self._is_told = False
        self._stop_signal: int | None = None
        self._kill_at: float | None = None
        self._status = 0

    def run(self) -> Worker | int:
        """Return the worker, in a worker's process; else the exit status, once no worker is left."""
        # Strategy: one loop that never blocks but in `poll`. Signals only fill a list and wake it; a worker's death is
        # the end of its line. So all state changes in this one place, and a fork finds nothing half done.
        self._take_signals()
        self._places[0].due_at = time.monotonic()  # the others follow once this one has started
        while True:
            for place in self._places:
                if place.due_at is not None and place.due_at <= time.monotonic():
                    worker = self._start(place)
                    if worker is not None:
                        return worker
            self._wait()
            while self._signals:
                self._handle_signal(self._signals.pop(0))
            if self._is_over():
                self._shared.metrics.close()
                return self._status

    def _take_signals(self) -> None:
        for one in (self._wake, self._woken):
            one.settimeout(0)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda number, _: self._signals.append(number))

    def _start(self, place: _Place) -> Worker | None:
        place.due_at, place.started_at = None, time.monotonic()
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError as error:
            ours.close()
            theirs.close()
            self._log.error("worker_not_started", worker=place.number, reason=error.strerror)
            self._plan_restart(place)
            return None
        if pid == 0:
            ours.close()
            return self._become(place, theirs)
        theirs.close()
        place.pid, place.line, place.is_ready, place.generation = pid, ours, False, self._generation
        self._shared.metrics.roster.write(place.number, pid, place.restarts.total)
        return None

    def _become(self, place: _Place, line: socket.socket) -> Worker:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C reaches all processes; only the supervisor acts on it
            signal.signal(number, signal.SIG_IGN)
        for one in (self._wake, self._woken, *(other.line for other in self._places if other.line is not None)):
            one.close()
        line.settimeout(0)
        return self._shared.become(place.number, line)

    def _wait(self) -> None:
        """Wait for a signal, a message or the end of a worker, or the next due time."""
        moments = [place.due_at for place in self._places if place.due_at is not None]
        moments += [] if self._kill_at is None else [self._kill_at]
        seconds = max(min(moments) - time.monotonic(), 0.0) if moments else None
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        by_line = {place.line.fileno(): place for place in self._places if place.line is not None}
        for line in by_line:
            poll.register(line, select.POLLIN)
        found = poll.poll(None if seconds is None else seconds * 1000 + 1)
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        for line, _ in found:
            if line in by_line:
                self._hear(by_line[line])
        if self._kill_at is not None and self._kill_at <= time.monotonic():
            self._kill_all()

    def _hear(self, place: _Place) -> None:
        if place.line is None:
            return
        try:
            words = place.line.recv(16)
        except ConnectionError:
            words = b""
        if not words:
            self._bury(place)
            return
        if READY in words:
            self._note_ready(place)
        if LEAVING in words and self._stop_signal is None:
            self._renew(place)  # it stops on its own: new connections go to the others

    def _note_ready(self, place: _Place) -> None:
        place.is_ready = True
        if not self._has_begun:
            self._has_begun = True
            for other in self._places[1:]:
                other.due_at = time.monotonic()
        if place.generation != self._generation:
            self._send(place, signal.SIGHUP)
        if self._is_told:
            self._log.info("worker_ready", worker=place.number, process=place.pid)
        elif all(other.is_ready for other in self._places):
            self._is_told = True
            self._program.tell_ready()

    def _bury(self, place: _Place) -> None:
        _, waited = os.waitpid(place.pid, 0)
        code, pid = os.waitstatus_to_exitcode(waited), place.pid
        if place.line is not None:
            place.line.close()
        place.pid, place.line, place.is_ready = 0, None, False
        self._shared.metrics.roster.write(place.number, 0, place.restarts.total)
        how = {"status": code} if code >= 0 else {"signal": signal.Signals(-code).name}
        if self._stop_signal is not None:
            if code not in {0, -signal.SIGTERM}:  # SIGTERM ends it directly if it had not started yet
                self._status = self._status or 1
                self._log.error("worker_died", worker=place.number, process=pid, **how)
        elif not self._has_begun:
            self._status = code if code > 0 else KILLED - code
            if code <= 0:  # with a positive status it has logged why
                self._log.error("worker_cannot_start", worker=place.number, process=pid, **how)
        else:
            self._plan_restart(place)
            seconds = round(max((place.due_at or 0.0) - time.monotonic(), 0.0), 1)
            tell = self._log.error if code else self._log.info
            tell("worker_died", worker=place.number, process=pid, **how, again_in_seconds=seconds)

    def _plan_restart(self, place: _Place) -> None:
        pause_seconds = place.restarts.note(time.monotonic() - place.started_at)
        place.due_at = time.monotonic() + pause_seconds
        if pause_seconds:
            self._renew(place)  # so that no connection waits that long

    def _renew(self, place: _Place) -> None:
        try:
            self._shared.renew(place.number)
        except OSError as error:
            self._log.error("listener_not_renewed", worker=place.number, reason=error.strerror)

    def _handle_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            if self._program.reload():
                self._generation += 1
                for place in self._places:
                    if place.is_ready:
                        place.generation = self._generation
                        self._send(place, number)
        elif self._stop_signal is None and self._has_begun:
            self._stop(number, signal.SIGTERM, self._program.drain_seconds() + SLACK_SECONDS)
        else:
            self._status = KILLED + number
            self._stop(number, END_AT_ONCE, LAST_SECONDS)

    def _stop(self, number: int, passed_on: int, seconds: float) -> None:
        """End all workers and start no new ones; those that do not end in time are killed."""
        self._stop_signal, self._kill_at = number, time.monotonic() + seconds
        self._shared.stop_listening()
        for place in self._places:
            place.due_at = None
            self._send(place, signal.SIGKILL if passed_on == END_AT_ONCE and not place.is_ready else passed_on)

    def _kill_all(self) -> None:
        self._kill_at = None
        for place in self._places:
            if place.pid:
                self._log.error("worker_killed", worker=place.number, process=place.pid)
                self._send(place, signal.SIGKILL)

    def _send(self, place: _Place, number: int) -> None:
        if place.pid:
            with suppress(ProcessLookupError):
                os.kill(place.pid, number)

    def _is_over(self) -> bool:
        return all(place.pid == 0 and place.due_at is None for place in self._places)
