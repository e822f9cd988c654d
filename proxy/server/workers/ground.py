"""What all workers share from before the first of them: the sockets, the metrics, a key.

Law: it is made once, by the supervisor, which alone knows of all workers.
"""

import secrets
import socket
from contextlib import ExitStack
from dataclasses import dataclass

from proxy.config.errors import ConfigError
from proxy.config.schema import Config
from proxy.server.workers.listeners import Listeners
from proxy.server.workers.worker import Worker
from proxy.state.summaries.sealing import KEY_BYTES
from proxy.telemetry.shared import SharedMetrics


@dataclass(frozen=True, slots=True)
class Ground:
    """For `count` workers. `pages` are the listeners at `metrics_listen`, if there is such an address."""

    count: int
    requests: Listeners
    pages: Listeners | None
    metrics: SharedMetrics
    spare_key: bytes

    @classmethod
    def open(cls, config: Config, workers: int) -> "Ground":
        """For a configuration.

        Raises OSError if an address cannot be listened on, ConfigError if there is no folder for the metrics.
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
        """Of all addresses."""
        return (self.requests,) if self.pages is None else (self.requests, self.pages)

    def become(self, number: int, line: socket.socket) -> Worker:
        """In a process that was forked: be that worker, and let go of what is others'."""
        for listeners in self.listeners:
            listeners.keep(number)
        self.metrics.write_as(number)
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
        """What comes from now on goes to other workers than this one, until it listens again. Raises OSError."""
        for listeners in self.listeners:
            listeners.renew(number)

    def stop_listening(self) -> None:
        """Leave the addresses to the workers: each is closed with the last of them that listens."""
        for listeners in self.listeners:
            listeners.close()


def _open_metrics(workers: int) -> SharedMetrics:
    try:
        return SharedMetrics.open(workers)
    except OSError as error:
        message = (
            f"workers: {error.strerror or 'no folder'}: the metrics of several workers need a folder for temporary"
            " files that can be written; name one with TMPDIR, or say workers: 1"
        )
        raise ConfigError(message) from error
