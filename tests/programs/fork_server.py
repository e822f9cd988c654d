"""Imports a program once, and forks for each order: `fork_server.py DESCRIPTOR`. `starts.py` gives the orders.

Law: it has one thread, and imports only modules of the standard library, and what the program imports at its start.
Each program has a server of its own.
What each server makes anew at its start and never changes, the tokenizer and the checks of the configuration, is made
once: that is half of a start.
"""

import marshal
import os
import runpy
import signal
import socket
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

HEAD = 8
"""Bytes of a length, and of a process's number."""


def main(connection: socket.socket) -> None:
    """Serve until the other end closes. In a fork, run what was ordered, and end as a program does."""
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder of this file
    at_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, and for what they started
    while True:
        head, streams, *_ = socket.recv_fds(connection, HEAD, 3)
        if not head:
            return
        order = marshal.loads(read(connection, int.from_bytes(head, "big")))  # noqa: S302 - of the tests themselves
        _load(*order["arguments"])
        if _fork(connection):
            for stream in streams:
                os.close(stream)
            continue
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        signal.signal(signal.SIGINT, at_interrupt)
        _run(**order)
        return


def read(connection: socket.socket, length: int) -> bytes:
    """Read so many bytes, or fewer if the other end has closed."""
    data = b""
    while len(data) < length and (piece := connection.recv(length - len(data))):
        data += piece
    return data


def _load(module: str, *arguments: str) -> None:
    """Import what the program imports at its start. What fails will fail in the fork, too, and is told there."""
    if module == "trimtab" and arguments:
        with suppress(Exception):
            from trimtab.proxy.cli.main import main as command  # noqa: PLC0415 - only where it is to run

            command.commands.get(arguments[0])
            _prepare()
    elif Path(module).name.startswith("with_openai"):  # tests/clients/drivers: 1.2 s of processor time
        with suppress(Exception):
            import openai.resources.responses  # noqa: PLC0415, F401


@cache
def _prepare() -> None:
    from trimtab.proxy.compaction import pool  # noqa: PLC0415
    from trimtab.proxy.config.load import load_config  # noqa: PLC0415

    load_config(environment={})
    load, pool.read_vocabulary = cache(pool.load_encoding), cache(pool.read_vocabulary)
    pool.load_encoding = lambda name, _=None: load(name)
    pool.load_encoding("o200k_base")
    pool.read_vocabulary("o200k_base")


def _fork(connection: socket.socket) -> bool:
    """Fork a process that becomes a child of who gave the order. Returns whether this is still the server."""
    between = os.fork()
    if not between:
        if not (number := os.fork()):
            return False
        connection.sendall(number.to_bytes(HEAD, "big"))
        os._exit(0)
    os.waitpid(between, 0)
    connection.sendall(b"\n")
    return True


def _run(arguments: list[str], environment: dict[str, str], directory: str, *, leads_session: bool) -> None:
    if leads_session:
        os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(directory)
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty() and not sys.stdout.write_through)
    sys.argv = arguments
    if arguments[0].endswith(".py"):
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")
        return
    if not sys.flags.safe_path:
        sys.path.insert(0, directory)  # as `python -m` does
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
