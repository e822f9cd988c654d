"""What all workers share (sockets, metrics, a key), what each gets of it, and its line to the supervisor.

Law: the supervisor makes what is shared once, before the first worker, and only the supervisor knows all workers. A
worker whose supervisor is gone drains and ends.
"""

import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.schema import Config
from trimtab.proxy.server.workers.listeners import Listeners
from trimtab.proxy.summaries.sealing import KEY_BYTES
from trimtab.proxy.telemetry.shared import SharedMetrics

READY = b"r"
"""The worker takes requests."""
LEAVING = b"l"
"""The worker takes no more requests, and ends."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One of `count` processes, numbered from 1.

    sockets, page_sockets: those of `listen` and of `metrics_listen`.
    spare_key: the key for clients without a credential, used if there is no file for it; the same in all workers.
    line: a socket to the supervisor. Errors on it are ignored, because they mean that the supervisor is gone.
    """

    number: int
    count: int
    sockets: Sequence[socket.socket]
    page_sockets: Sequence[socket.socket]
    url: str
    pages_url: str | None
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


@dataclass(frozen=True, slots=True)
class SharedResources:
    """Shared by `count` workers. `pages`: the listeners at `metrics_listen`; None if it is not set."""

    count: int
    requests: Listeners
    pages: Listeners | None
    metrics: SharedMetrics
    spare_key: bytes

    @classmethod
    def open(cls, config: Config, workers: int) -> "SharedResources":
        """Open sockets and metrics for a configuration.

        Raises OSError if it cannot listen at an address, ConfigError if there is no folder for the metrics.
        """
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
        return Worker(
            number=number,
            count=self.count,
            sockets=self.requests.of(number),
            page_sockets=() if self.pages is None else self.pages.of(number),
            url=self.requests.url,
            pages_url=None if self.pages is None else self.pages.url,
            spare_key=self.spare_key,
            metrics=self.metrics,
            line=line,
        )

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
        message = (
            f"workers: {error.strerror or 'no folder'}: the metrics of several workers need a writable folder for"
            " temporary files; name one with TMPDIR, or set workers: 1"
        )
        raise ConfigError(message) from error
