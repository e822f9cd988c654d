"""The line between a worker and its supervisor."""

import socket
from pathlib import Path

import pytest

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.workers.worker import LEAVING, READY, SharedResources, Worker
from trimtab.proxy.telemetry.shared import Roster, SharedMetrics


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


def open_shared(*settings: str) -> SharedResources:
    """What two workers share."""
    return SharedResources.open(load_config(settings=("listen=127.0.0.1:0", *settings), environment={}), 2)


@pytest.mark.parametrize("settings", [(), ("metrics_listen=127.0.0.1:0",)])
def test_workers_have_the_same_key_and_addresses(settings) -> None:
    """A client without a credential finds what another worker has kept for it."""
    shared = open_shared(*settings)
    first, second = (shared.become(number, socket.socket()) for number in (1, 2))
    assert first.spare_key == second.spare_key
    assert len(first.spare_key) == 32
    assert (first.number, second.number, first.count) == (1, 2, 2)
    assert first.url == second.url
    assert bool(first.page_sockets) is bool(first.pages_url) is bool(settings)
    shared.stop_listening()
    shared.metrics.close()
    for worker in (first, second):
        worker.line.close()


def test_what_stops_listening_refuses_connections() -> None:
    """All addresses refuse them, as soon as no worker listens there either."""
    shared = open_shared("metrics_listen=127.0.0.1:0")
    places = [listeners.of(number)[0].getsockname() for listeners in shared.listeners for number in (1, 2)]
    for listeners in shared.listeners:
        listeners.of(2)[0].listen()
    shared.renew(1)
    socket.create_connection(places[0], timeout=30).close()
    shared.stop_listening()
    for place in places:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place, timeout=30)
    shared.metrics.close()


def test_an_address_that_is_taken_is_an_error_at_once() -> None:
    """It is reported before there is any worker."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            open_shared(f"metrics_listen=127.0.0.1:{taken.getsockname()[1]}")


def test_metrics_without_a_folder_are_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses are free again afterwards."""

    def fail(_workers: int) -> SharedMetrics:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(SharedMetrics, "open", fail)
    with pytest.raises(ConfigError, match="name one with TMPDIR"):
        open_shared()
