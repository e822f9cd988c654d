"""The line between a worker and its supervisor."""

import socket
from pathlib import Path

import pytest

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.values import split_address
from trimtab.proxy.server.workers import worker
from trimtab.proxy.server.workers.worker import LEAVING, READY, Listeners, SharedResources, Worker
from trimtab.proxy.telemetry.shared import Roster, SharedMetrics


@pytest.fixture
def line():
    """Both ends of the line: the supervisor's and the worker's."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(0)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_worker_hears_that_the_supervisor_is_gone(line) -> None:
    """It does not hear so before, and says how far it is. What the worker says after that does no harm."""
    ours, theirs = line
    metrics = SharedMetrics(Path(), Roster(2), 0)
    worker, ended = Worker(1, 2, (), (), spare_key=b"", metrics=metrics, line=theirs), []
    worker.tell(READY)
    assert ours.recv(16) == READY
    worker.hear_end(lambda: ended.append(1))
    assert ended == []
    ours.close()
    worker.hear_end(lambda: ended.append(1))
    assert ended == [1]
    worker.tell(LEAVING)


def open_shared(*settings: str) -> SharedResources:
    return SharedResources.open(load_config(settings=("listen=127.0.0.1:0", *settings), environment={}), 2)


@pytest.mark.parametrize("settings", [(), ("metrics_listen=127.0.0.1:0",)])
def test_workers_have_the_same_key_and_addresses(settings) -> None:
    """A client without a credential finds what another worker has kept for it."""
    shared = open_shared(*settings)
    assert len({one.getsockname() for number in (1, 2) for one in shared.requests.of(number)}) == 1
    first, second = (shared.become(number, socket.socket()) for number in (1, 2))
    assert first.spare_key == second.spare_key
    assert len(first.spare_key) == 32
    assert (first.number, second.number, first.count) == (1, 2, 2)
    assert bool(first.page_sockets) is bool(settings)
    shared.stop_listening()
    shared.metrics.close()
    for one in (first, second):
        one.line.close()


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


def test_metrics_without_a_folder_are_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_workers: int) -> SharedMetrics:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(SharedMetrics, "open", fail)
    with pytest.raises(ConfigError, match=r"workers: No usable temporary directory found: .* name one with TMPDIR"):
        open_shared()


LOCAL = "127.0.0.1:0"


def connect(listeners: Listeners) -> socket.socket:
    return socket.create_connection(split_address(listeners.url.removeprefix("http://")), timeout=30)


@pytest.fixture(params=[True, False], ids=["spread", "shared"])
def listeners(request: pytest.FixtureRequest):
    """The listeners of two workers, with separate sockets and with shared ones."""
    made = Listeners(LOCAL, 2, is_spread=request.param)
    yield made
    made.close()


def test_what_comes_before_a_worker_or_after_it_has_died_waits_for_the_next(listeners: Listeners) -> None:
    """The supervisor's copy of its sockets goes on listening."""
    with connect(listeners):
        listeners.of(1)[0].accept()[0].close()

    (one,) = listeners.of(1)
    copy = one.dup()  # the worker's, after a fork
    copy.close()
    with connect(listeners):
        accepted, _ = one.accept()
        accepted.close()


def test_renewed_sockets_get_nothing_until_they_listen() -> None:
    """Until then, new connections go to the others. The address stays."""
    listeners = Listeners(LOCAL, 2, is_spread=True)
    (first,), (second,) = listeners.of(1), listeners.of(2)
    second.listen()
    second.settimeout(30)
    listeners.renew(1)
    for _ in range(16):
        with connect(listeners):
            second.accept()[0].close()
    (renewed,) = listeners.of(1)
    assert renewed.getsockname() == second.getsockname()
    assert first.fileno() == -1
    listeners.close()


def test_shared_sockets_are_not_renewed() -> None:
    listeners = Listeners(LOCAL, 2, is_spread=False)
    before = list(listeners.of(1))
    listeners.renew(1)
    assert list(listeners.of(1)) == before
    assert listeners.of(2)[0].fileno() != -1
    listeners.close()


def test_a_worker_keeps_its_own_sockets_only(listeners: Listeners) -> None:
    """Otherwise a port would stay open as long as any process lives."""
    (own,), (other,) = listeners.of(1), listeners.of(2)
    listeners.keep(1)
    assert own.fileno() != -1
    assert other.fileno() == -1 or other is own


def test_an_address_that_others_have_is_refused(listeners: Listeners) -> None:
    """The other program may even be willing to share the address, as a second trimtab would."""
    address = listeners.url.removeprefix("http://")
    for is_spread in (True, False):
        with pytest.raises(OSError, match="in use"):
            Listeners(address, 2, is_spread=is_spread)
    with socket.socket() as alone, pytest.raises(OSError, match="in use"):
        alone.bind(split_address(address))


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
def test_all_addresses_of_a_name_are_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    try:
        listeners = Listeners("localhost:0", 2)
    except OSError as error:
        pytest.skip(f"there is no IPv6 here: {error}")
    assert len({one.getsockname()[1] for one in listeners.of(2)}) == 1
    assert {one.family for one in listeners.of(2)} == {socket.AF_INET, socket.AF_INET6}
    listeners.close()


@pytest.mark.parametrize("is_spread", [True, False])
def test_what_was_opened_before_a_failure_is_closed(monkeypatch: pytest.MonkeyPatch, *, is_spread: bool) -> None:
    made: list[socket.socket] = []
    bound: list[socket.socket] = []
    make, listen = worker._make, socket.socket.listen

    def keep(*kind: int) -> socket.socket:
        made.append(make(*kind))
        return made[-1]

    def fail(one: socket.socket, *backlog: int) -> None:
        bound.append(one)
        if len(bound) > 1:
            raise OSError("no more")
        listen(one, *backlog)

    monkeypatch.setattr(worker, "_make", keep)
    monkeypatch.setattr(socket.socket, "listen", fail)
    with pytest.raises(OSError, match="no more"):
        Listeners("127.0.0.1:0", 2, is_spread=is_spread)
    assert made
    assert {one.fileno() for one in made} == {-1}
