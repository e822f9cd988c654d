"""The sockets of one address, for several processes."""

import socket

import pytest

from trimtab.proxy.config.values import split_address
from trimtab.proxy.server.workers.listeners import Listeners

LOCAL = "127.0.0.1:0"


def connect(listeners: Listeners) -> socket.socket:
    """A connection from a client."""
    return socket.create_connection(split_address(listeners.url.removeprefix("http://")), timeout=30)


@pytest.fixture(params=[True, False], ids=["spread", "shared"])
def listeners(request: pytest.FixtureRequest):
    """The listeners of two workers, with separate sockets and with shared ones."""
    made = Listeners(LOCAL, 2, is_spread=request.param)
    yield made
    made.close()


def test_all_workers_have_one_address(listeners: Listeners) -> None:
    """The port may be one that the system chooses."""
    ports = {one.getsockname()[1] for number in (1, 2) for one in listeners.of(number)}
    assert ports == {split_address(listeners.url.removeprefix("http://"))[1]}
    assert ports != {0}


def test_connections_wait_for_the_first_worker_from_the_start(listeners: Listeners) -> None:
    """So the address is taken at once, and no client is refused while the first worker starts."""
    with connect(listeners):
        listeners.of(1)[0].accept()[0].close()


def test_what_comes_to_a_dead_worker_waits_for_the_next(listeners: Listeners) -> None:
    """The supervisor's copy of its sockets goes on listening."""
    (one,) = listeners.of(1)
    copy = one.dup()  # the worker's, after a fork
    copy.close()
    with connect(listeners):
        accepted, _ = one.accept()
        accepted.close()


def test_every_connection_goes_to_one_who_listens() -> None:
    """A worker that has not started gets none."""
    listeners = Listeners(LOCAL, 2, is_spread=True)
    (one,) = listeners.of(1)
    one.settimeout(30)
    for _ in range(16):
        with connect(listeners):
            one.accept()[0].close()
    listeners.close()


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
    """The others need them."""
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
    """All of them have the same port."""
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
