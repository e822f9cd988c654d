"""What a worker gets from its supervisor, and the line between them.

Law: a worker whose supervisor is gone drains and ends.
"""

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from proxy.telemetry.shared import SharedMetrics

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
        """Tell the supervisor this worker's state."""
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
