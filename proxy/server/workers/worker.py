"""What a worker has from its supervisor, and the line between the two.

Law: a worker whose supervisor is gone drains and ends.
"""

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from proxy.telemetry.shared import SharedMetrics

READY = b"r"
"""It takes requests."""
LEAVING = b"l"
"""It takes no more of them, and ends."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One of `count` processes, by its number from 1.

    `sockets` are those of `listen`, `page_sockets` those of `metrics_listen`. `spare_key` stands for the key of clients
    without a credential if there is no file for it: all workers have the same. Raises nothing on the line: who does not
    hear is gone.
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
        """Tell the supervisor how far it is."""
        with suppress(OSError):
            self.line.send(word)

    def hear_end(self, end: Callable[[], None]) -> None:
        """Call this if the supervisor is gone. To be called when there is something to read on the line."""
        with suppress(BlockingIOError):
            try:
                is_gone = not self.line.recv(1)
            except ConnectionError:
                is_gone = True
            if is_gone:
                end()
