"""What all workers share (sockets, metrics, a key), what each gets of it, and its line to the supervisor.

Law: the supervisor makes what is shared once, before the first worker, and only the supervisor knows all workers. A
worker whose supervisor is gone drains and ends. An address that another program uses is an error at the start; it is
never shared with that program. Each worker has its own sockets, and the kernel spreads connections among them; if it
cannot do that, all workers share the same sockets. Connections that wait for a worker that died wait for its successor.
"""

import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

import msgspec

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.values import site_url, split_address
from trimtab.proxy.summaries.sealing import KEY_BYTES
from trimtab.proxy.telemetry.shared import SharedMetrics

IS_SPREAD = sys.platform.startswith("linux")
"""Whether the kernel spreads connections among sockets with SO_REUSEPORT. macOS gives all of them to the last socket.

Source: Linux, socket(7). The kernel chooses by a hash of the connection's addresses and ports.
"""


class Listeners:
    """Sockets bound to `address`, HOST:PORT; port 0 picks one free port for all. Raises OSError.

    The first worker's sockets listen from the start. Every other worker starts to listen itself; until then it gets no
    connections. Workers are numbered from 1.
    """

    def __init__(self, address: str, workers: int, *, is_spread: bool = IS_SPREAD) -> None:
        self._is_spread = is_spread
        host, port = split_address(address)
        self._held: list[socket.socket] = []
        self._sockets: dict[int, list[socket.socket]] = {}
        alone: list[socket.socket] = []
        try:
            _listen_alone(host, port, alone)
            self._held = self._share(alone) if is_spread else alone
            for number in range(1, workers + 1):
                self._sockets[number] = self._bind()
            for one in self._sockets[1]:
                one.listen()
        except OSError:
            for one in alone:
                one.close()
            self.close()
            raise
        for one in alone if is_spread else ():
            one.close()
        self.url = site_url(host, self._held[0].getsockname()[1])

    def of(self, number: int) -> Sequence[socket.socket]:
        return self._sockets[number]

    def keep(self, number: int) -> None:
        own = set(map(id, self._sockets[number]))
        for one in self._list():
            if id(one) not in own:
                one.close()

    def renew(self, number: int) -> None:
        """Replace a worker's sockets; until the new ones listen, connections go to other workers. Raises OSError."""
        if self._is_spread:
            before, self._sockets[number] = self._sockets[number], self._bind()
            for one in before:
                one.close()

    def close(self) -> None:
        for one in self._list():
            one.close()

    def _list(self) -> list[socket.socket]:
        return [*self._held, *(one for several in self._sockets.values() for one in several)]

    def _share(self, alone: Sequence[socket.socket]) -> list[socket.socket]:
        """Sockets at the same addresses that never listen; they keep the addresses for this process."""
        for one in alone:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        return [_bind_beside(one) for one in alone]

    def _bind(self) -> list[socket.socket]:
        return [_bind_beside(one) for one in self._held] if self._is_spread else self._held


def _listen_alone(host: str, port: int, made: list[socket.socket]) -> None:
    """Listen without SO_REUSEPORT, so that the kernel reports a used address. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, place in dict.fromkeys(found):
        one = _make(family, kind, protocol)
        made.append(one)
        one.bind((place[0], port, *place[2:]))
        one.listen()
        port = one.getsockname()[1]


def _bind_beside(other: socket.socket) -> socket.socket:
    """A socket bound to the same address. Raises OSError."""
    one = _make(other.family, other.type, other.proto)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(other.getsockname())
    except OSError:
        one.close()
        raise
    return one


def _make(family: int, kind: int, protocol: int) -> socket.socket:
    one = socket.socket(family, kind, protocol)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as asyncio does: IPv4 has its own sockets
    return one


READY = b"r"  # the worker takes requests
LEAVING = b"l"  # the worker takes no more requests, and ends


class Worker(msgspec.Struct, frozen=True):
    """One of `count` processes, numbered from 1.

    sockets, page_sockets: those of `listen` and of `metrics_listen`.
    spare_key: the key for clients without a credential, used if there is no file for it; the same in all workers.
    line: a socket to the supervisor. Errors on it are ignored, because they mean that the supervisor is gone.
    """

    number: int
    count: int
    sockets: Sequence[socket.socket]
    page_sockets: Sequence[socket.socket]
    spare_key: bytes
    metrics: SharedMetrics
    line: socket.socket

    def tell(self, word: bytes) -> None:
        with suppress(OSError):
            self.line.send(word)

    def hear_end(self, end: Callable[[], None]) -> None:
        """Call `end` if the supervisor is gone. Must be called when the line is readable."""
        with suppress(BlockingIOError):
            try:
                is_gone = not self.line.recv(1)
            except ConnectionError:
                is_gone = True
            if is_gone:
                end()


class SharedResources(msgspec.Struct, frozen=True):
    """Shared by `count` workers. `pages`: the listeners at `metrics_listen`; None if it is not set."""

    count: int
    requests: Listeners
    pages: Listeners | None
    metrics: SharedMetrics
    spare_key: bytes

    @classmethod
    def open(cls, config: Config, workers: int) -> "SharedResources":
        """Raises OSError if it cannot listen at an address, ConfigError if there is no folder for the metrics."""
        with ExitStack() as stack:
            requests = Listeners(config.listen, workers)
            stack.callback(requests.close)
            pages = Listeners(config.metrics_listen, workers) if config.metrics_listen is not None else None
            if pages is not None:
                stack.callback(pages.close)
            metrics = _open_metrics(workers)
            stack.pop_all()
        return cls(workers, requests, pages, metrics, secrets.token_bytes(KEY_BYTES))

    @property
    def listeners(self) -> tuple[Listeners, ...]:
        return (self.requests,) if self.pages is None else (self.requests, self.pages)

    def become(self, number: int, line: socket.socket) -> Worker:
        """In a forked process: become this worker, and close what belongs to the others."""
        for listeners in self.listeners:
            listeners.keep(number)
        sockets, page_sockets = self.requests.of(number), () if self.pages is None else self.pages.of(number)
        return Worker(number, self.count, sockets, page_sockets, self.spare_key, self.metrics, line)

    def renew(self, number: int) -> None:
        """Send new connections to the other workers until this one listens again. Raises OSError."""
        for listeners in self.listeners:
            listeners.renew(number)

    def stop_listening(self) -> None:
        """Close the supervisor's sockets; an address closes with the last worker that listens."""
        for listeners in self.listeners:
            listeners.close()


def _open_metrics(workers: int) -> SharedMetrics:
    try:
        return SharedMetrics.open(workers)
    except OSError as error:
        raise ConfigError(
            f"workers: {error.strerror or 'no folder'}: the metrics of several workers need a writable folder for"
            " temporary files; name one with TMPDIR, or set workers: 1"
        ) from error
