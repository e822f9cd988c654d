"""A real redis-server on a free local port. It writes to disk only on demand; its folder is removed at the end."""

import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAM = shutil.which("redis-server")
PORT_ATTEMPTS = 5


class RedisServer:
    """A server that can be stopped, frozen and started again on the same port.

    options: notes of the code that started the server.
    """

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.options: dict[str, str] = {}

    @property
    def url(self) -> str:
        """The URL of its database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it: the first time on a free port, later on the same port."""
        ports = [self.port] if self.port else [find_free_port() for _ in range(PORT_ATTEMPTS)]
        for port in ports:
            self.port = port
            if self._start_once():
                return
        message = f"redis-server did not start on any of the ports {ports}"
        raise RuntimeError(message)

    def stop(self) -> None:
        """Kill it. Its data is lost."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within the block it accepts connections but does not answer."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _start_once(self) -> bool:
        """Return whether it started. It does not if another program has taken the port."""
        assert PROGRAM is not None
        options = ("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.directory))
        quiet = ("--save", "", "--appendonly", "no", "--rdbcompression", "no")
        process = subprocess.Popen([PROGRAM, *options, *quiet, *self._arguments], stdout=subprocess.PIPE)
        self._process = process
        assert process.stdout is not None
        if any(b"Ready to accept connections" in line for line in process.stdout):
            return True
        self.stop()
        return False


@contextmanager
def run_redis(*arguments: str) -> Iterator[RedisServer]:
    """Run a server until the block ends."""
    with tempfile.TemporaryDirectory(prefix="trimtab-redis-") as directory:
        server = RedisServer(Path(directory), *arguments)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def find_free_port() -> int:
    """A port that no program listens on, below those that the system gives out: else another test may get it first."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
