"""The process that starts the workers, over real processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO
from unittest.mock import Mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.model_learning import ListLog

from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.workers.supervisor import (
    HEALTHY_SECONDS,
    MAX_PAUSE_SECONDS,
    SLACK_SECONDS,
    Program,
    Restarts,
    Supervisor,
    count_cores,
    count_workers,
)
from trimtab.proxy.server.workers.worker import LEAVING, READY

PROGRAM = Path(__file__).parents[3] / "programs" / "supervised.py"


class Supervised:
    """A running supervisor. `log` has its lines so far."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.log: list[dict[str, object]] = []

    def read_log(self, event: str) -> dict[str, object]:
        while True:
            line = orjson.loads(read_line(self.process.stderr))
            self.log.append(line)
            if line["event"] == event:
                return line

    def read_worker(self) -> tuple[int, int, str]:
        """A worker's next line: its number, its process and its action."""
        number, pid, what = read_line(self.process.stdout).decode().split()
        return int(number), int(pid), what

    def read_both(self) -> dict[int, tuple[int, str]]:
        """The next line of both workers, by their numbers."""
        return {number: (pid, what) for number, pid, what in (self.read_worker(), self.read_worker())}

    def end(self, *numbers: int) -> int:
        """Send signals, each after the previous one was handled. Returns the exit status."""
        for number in numbers:
            self.process.send_signal(number)
        return self.process.wait(30)


def read_line(stream: "IO[bytes] | None") -> bytes:
    """The next line. Raises an error if there is none."""
    line = stream.readline()
    assert line
    return line


@contextmanager
def supervising(what: str) -> Iterator[Supervised]:
    command = [sys.executable, str(PROGRAM), what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield Supervised(process)
        finally:
            if process.poll() is None:
                process.kill()


def test_it_says_once_that_all_are_ready_and_passes_the_end_on() -> None:
    """It has one thread and two workers. An invalid configuration reaches none. It ends after both, with status 0."""
    with supervising("invalid") as running:
        assert running.read_log("listening")["threads"] == 1
        assert set(running.read_both()) == {1, 2}
        running.process.send_signal(signal.SIGHUP)
        assert running.end(signal.SIGTERM) == 0
        assert {what for _, what in running.read_both().values()} == {"SIGTERM"}
        assert [line["event"] for line in running.log] == ["listening"]


def test_workers_that_die_again_and_again_come_back_ever_later() -> None:
    """Each has its own pauses. The supervisor still ends at once if it is told to; 1: one died while it ended."""
    with supervising("die") as running:
        pauses: dict[object, list[object]] = {1: [], 2: []}
        while min(map(len, pauses.values())) < 3:
            line = running.read_log("worker_died")
            assert line["status"] == 3
            pauses[line["worker"]].append(line["again_in_seconds"])
        assert all(several[:3] == [0.0, 0.5, 1.0] for several in pauses.values())
        assert running.end(signal.SIGTERM) in {0, 1}


def test_a_worker_that_leaves_by_itself_gets_no_more_connections_and_one_comes_in_its_place() -> None:
    """The effect is as if an operator ended it: its requests end, and new ones go to other workers."""
    with supervising("leave") as running:
        running.read_log("listening")
        both = running.read_both()
        os.kill(both[1][0], signal.SIGTERM)
        assert running.read_worker() == (1, both[1][0], "SIGTERM")
        line = running.read_log("worker_died")
        assert (line["level"], line["status"], line["again_in_seconds"]) == ("info", 0, 0.0)
        assert running.read_worker()[::2] == (1, "ready")
        assert running.end(signal.SIGTERM) == 0


def test_workers_that_do_not_end_are_killed() -> None:
    """They are killed after the drain, and the log says so. The status is 1."""
    with supervising("deaf") as running:
        running.read_log("listening")
        both = running.read_both()
        assert running.end(signal.SIGTERM) == 1
        assert running.read_log("worker_killed")["process"] in {pid for pid, _ in both.values()}
    for pid, _ in both.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_second_signal_ends_all_at_once() -> None:
    with supervising("stubborn") as running:
        running.read_log("listening")
        running.read_both()
        running.process.send_signal(signal.SIGINT)
        assert {what for _, what in running.read_both().values()} == {"SIGTERM"}
        assert running.end(signal.SIGTERM) == 128 + signal.SIGTERM
        assert {what for _, what in running.read_both().values()} == {"SIGQUIT"}


@pytest.fixture
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which this process may use sixteen cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


@pytest.mark.usefixtures("sixteen_cores")
def test_a_container_counts_what_it_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a core counts as one, an invalid file not. Where no process is bound, as on MacOS, all cores count."""
    quotas = {"max 100000\n": 16, "200000 100000\n": 2, "150000 100000\n": 2, "5000 100000": 1, "": 16, "1 0": 16}
    for quota, expected in quotas.items():
        (tmp_path / "cpu.max").write_text(quota, encoding="ascii")
        assert count_cores(tmp_path / "cpu.max") == expected
    assert count_cores(tmp_path / "none") == 16
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert count_cores(tmp_path / "none") == os.cpu_count()


@pytest.mark.usefixtures("sixteen_cores")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["workers=3"], 3),
        (["workers=auto"], 4),
        (["workers=auto", "limits.max_memory_bytes=17179869184"], 16),
        (["workers=auto", "limits.max_memory_bytes=536870912"], 1),
        ([], 1),
    ],
)
def test_auto_takes_no_more_than_there_is_memory_for(settings: list[str], expected: int, tmp_path: Path) -> None:
    assert count_workers(load_config(settings=settings, environment={}), tmp_path / "none") == expected


def test_pauses_grow_with_ends_that_come_soon() -> None:
    restarts = Restarts()
    assert [restarts.note(0.1) for _ in range(9)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]


@given(st.lists(st.floats(0, 100), max_size=30))
def test_one_that_has_worked_is_back_at_once(lives: list[float]) -> None:
    """Earlier ends do not count. No pause is longer than the maximum."""
    restarts = Restarts()
    assert all(0 <= restarts.note(seconds) <= MAX_PAUSE_SECONDS for seconds in lives)
    assert restarts.note(HEALTHY_SECONDS) == 0
    assert restarts.total == len(lives) + 1


@contextmanager
def idle_supervisor() -> Iterator[tuple[Supervisor, list[int]]]:
    """One whose worker was not started, and the workers whose connections were sent to others."""
    numbers = list[int]()
    shared = SimpleNamespace(count=1, renew=numbers.append, stop_listening=lambda: None, metrics=Mock())
    supervisor = Supervisor(shared, Program(lambda: True, lambda: 25.0, lambda: None), ListLog())  # type: ignore[arg-type]
    try:
        yield supervisor, numbers
    finally:
        for one in (supervisor._wake, supervisor._woken):
            one.close()


@pytest.mark.parametrize(("said", "renewed"), [(READY, []), (LEAVING, [1]), (READY + LEAVING, [1])])
def test_a_worker_that_leaves_is_sent_no_further_connections(said: bytes, renewed: list[int]) -> None:
    """At once, though it goes on with its requests. While all end, there is nobody else to send them to."""
    for is_stopping in (False, True):
        with idle_supervisor() as (supervisor, numbers):
            ours = socket.socketpair()
            supervisor._stop_signal = signal.SIGTERM if is_stopping else None
            place = supervisor._places[0]
            place.line = ours[0]
            ours[1].send(said)
            supervisor._hear(place)
            assert numbers == ([] if is_stopping else renewed)
            for one in ours:
                one.close()


def test_a_worker_that_cannot_be_forked_is_tried_again_and_meanwhile_no_connection_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    with idle_supervisor() as (supervisor, numbers):
        place = supervisor._places[0]
        for renewed in ([], [1]):
            assert supervisor._start(place) is None
            assert place.due_at is not None
            assert numbers == renewed


def test_a_worker_that_was_starting_during_a_reload_reloads_and_none_is_killed_before_the_end_of_the_drain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = list[tuple[int, int]]()
    monkeypatch.setattr(os, "kill", lambda *each: sent.append(each))
    with idle_supervisor() as (supervisor, _):
        place, begun_at = supervisor._places[0], time.monotonic()
        place.pid = 77
        supervisor._handle_signal(signal.SIGHUP)
        supervisor._note_ready(place)
        supervisor._handle_signal(signal.SIGTERM)
        assert sent == [(77, signal.SIGHUP), (77, signal.SIGTERM)]
        assert (supervisor._kill_at or 0) >= begun_at + 25 + SLACK_SECONDS


@pytest.mark.parametrize(
    ("waited", "status"), [(0, 0), (signal.SIGTERM.value, 0), (signal.SIGKILL.value, 1), (3 << 8, 1)]
)
def test_a_worker_that_ends_with_the_others_is_a_failure_only_if_it_did_not_end_as_told(
    waited: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal itself ends one that had not started. Its line may be reset; the metrics count it no more."""
    monkeypatch.setattr(os, "waitpid", lambda *_: (77, waited))
    with idle_supervisor() as (supervisor, _):
        place, supervisor._stop_signal = supervisor._places[0], signal.SIGTERM
        place.pid, place.line = 77, Mock(recv=Mock(side_effect=ConnectionResetError))
        supervisor._hear(place)
        assert (place.pid, place.due_at, supervisor._status) == (0, None, status)
        supervisor._shared.metrics.roster.write.assert_called_once_with(1, 0, 0)  # type: ignore[attr-defined]


def test_no_port_that_is_lost_and_no_worker_that_has_just_ended_stops_the_supervisor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "kill", Mock(side_effect=ProcessLookupError))
    with idle_supervisor() as (supervisor, _):
        place = supervisor._places[0]
        place.pid, supervisor._shared.renew = 77, Mock(side_effect=OSError(98, "in use"))  # type: ignore[method-assign]
        supervisor._renew(place)
        supervisor._send(place, signal.SIGTERM)
        assert [line["event"] for line in supervisor._log.lines] == ["listener_not_renewed"]


def test_a_reload_reaches_all_workers() -> None:
    """Workers that start later begin with the new configuration."""
    with supervising("serve") as running:
        running.read_log("listening")
        both = running.read_both()
        running.process.send_signal(signal.SIGHUP)
        assert {what for _, what in running.read_both().values()} == {"SIGHUP"}
        os.kill(both[1][0], signal.SIGKILL)
        running.read_log("worker_ready")
        number, pid, what = running.read_worker()
        assert (number, what) == (1, "ready")
        assert pid != both[1][0]
        assert running.end(signal.SIGTERM) == 0
        assert {what for _, what in running.read_both().values()} == {"SIGTERM"}


@pytest.mark.parametrize(("what", "status"), [("fail", 3), ("killed", 137)])
def test_a_worker_that_cannot_start_is_no_loop(what: str, status: int) -> None:
    """Only the first worker starts, and its status is the supervisor's. The supervisor logs what it could not log."""
    with supervising(what) as running:
        assert running.process.wait(30) == status
        said = [orjson.loads(line) for line in running.process.stderr.read().splitlines()]
    assert [(line["event"], line["signal"]) for line in said] == [("worker_cannot_start", "SIGKILL")] * (
        what == "killed"
    )
