"""Processes that do jobs: as many at a time as there is work for, and none for ever."""

import os
import select
import signal
from collections.abc import Callable

import pytest
from mutation import forks
from mutation.forks import BY_TIME, run_forked


def test_a_job_that_waits_gives_its_place_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first one here would wait for the second for ever."""
    monkeypatch.setattr(forks, "WORKERS", 1)
    monkeypatch.setattr(forks, "WAITING_SECONDS", 0.1)
    ours, theirs = os.pipe()

    def work(job: str, begin_test: Callable[[], None]) -> str:
        begin_test()
        if job == "writes":
            os.write(theirs, b"x")
            return "wrote"
        return os.read(ours, 1).decode()

    assert dict(run_forked(["reads", "writes"], work)) == {"reads": "x", "writes": "wrote"}


def test_a_job_that_waits_for_ever_is_ended_with_what_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result says so: it does not count as one that found nothing."""
    monkeypatch.setattr(forks, "SILENT_SECONDS", 0.1)
    ours, theirs = os.pipe()

    def work(_: str, begin_test: Callable[[], None]) -> str:
        begin_test()
        os.fork()
        select.select([], [], [])
        return ""

    assert list(run_forked(["waits"], work)) == [("waits", BY_TIME)]
    os.close(theirs)
    assert os.read(ours, 1) == b""  # nobody is left who could write


def test_a_job_that_is_killed_has_died() -> None:
    """It found something, if not what."""
    assert list(run_forked([1], lambda *_: os.kill(os.getpid(), signal.SIGKILL) or "")) == [(1, "died")]
