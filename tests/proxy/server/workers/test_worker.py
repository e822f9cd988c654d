"""The line between a worker and its supervisor."""

import socket
from pathlib import Path

import pytest

from proxy.server.workers.worker import LEAVING, READY, Worker
from proxy.telemetry.shared import Roster, SharedMetrics


@pytest.fixture
def line():
    """Both ends of the line: the supervisor's and the worker's."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(0)
    yield ours, theirs
    ours.close()
    theirs.close()


def make_worker(line: socket.socket) -> Worker:
    """A worker without sockets."""
    metrics = SharedMetrics(Path(), Roster(2), 0)
    return Worker(
        number=1,
        count=2,
        sockets=(),
        page_sockets=(),
        url="http://h",
        pages_url=None,
        spare_key=b"",
        metrics=metrics,
        line=line,
    )


def test_a_worker_says_how_far_it_is(line) -> None:
    """Each state is one message."""
    ours, theirs = line
    worker = make_worker(theirs)
    worker.tell(READY)
    worker.tell(LEAVING)
    assert ours.recv(16) == READY + LEAVING


def test_a_worker_hears_that_the_supervisor_is_gone(line) -> None:
    """It does not hear so before. What the worker says after that does no harm."""
    ours, theirs = line
    worker, ended = make_worker(theirs), []
    worker.hear_end(lambda: ended.append(1))
    assert ended == []
    ours.close()
    worker.hear_end(lambda: ended.append(1))
    assert ended == [1]
    worker.tell(LEAVING)
