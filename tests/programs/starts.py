"""Starts `python -m trimtab` or a script in a fork of a process that has imported it: half the processor time.

All else is as if the program was executed: its parent, arguments, environment, directory, streams, signals. Only sets
have the same order in all forks. A test of the start itself, or of a process's memory, executes the program instead.
"""

import asyncio
import atexit
import ctypes
import marshal
import os
import socket
import subprocess
import sys
import threading
from asyncio.subprocess import Process
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from programs import fork_server
from programs.fork_server import HEAD, read

AT_THE_START = ("PYTHON", "COVERAGE", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "OPENSSL_")
"""Variables with these beginnings act before the program does: who wants others than this process has, executes it."""
SET_CHILD_SUBREAPER = 36
"""Source: Linux, prctl(2)."""


class _Program(str):
    """`sys.executable`, but in a fork."""

    __slots__ = ()


PROGRAM = _Program(sys.executable)


async def start_trimtab(*arguments: object, **options: Any) -> Process:
    """Start `python -m trimtab` with these arguments. The options are standard streams, `env` and `cwd`."""
    return await start_module(PROGRAM, "trimtab", *arguments, **options)


async def start_module(program: str, module: str, *arguments: object, **options: Any) -> Process:
    """Start `python -m MODULE`: in a fork if the program is PROGRAM, executed if it is `sys.executable`."""
    with patch.object(subprocess, "Popen", Forked):
        return await asyncio.create_subprocess_exec(program, "-m", module, *map(str, arguments), **options)


class Forked(subprocess.Popen[bytes]):
    """A process that is a fork if its first argument is PROGRAM."""

    def _execute_child(self, args: Sequence[str], *others: Any) -> None:
        """The others are the same ones in Python 3.11 to 3.14. Six are descriptors: of each pipe, both ends."""
        cwd, env, pipes = others[4], others[5], others[9:15]
        environment = dict(os.environ if env is None else env)
        arguments = list(args[2:] if args[1] == "-m" else args[1:])
        if args[0] is not PROGRAM or not (server := _servers[arguments[0]]).is_like(environment):
            super()._execute_child(args, *others)
            return
        given = (pipes[0], pipes[3], pipes[5])
        sys.audit("subprocess.Popen", args[0], list(args), cwd, env)  # as Python does
        try:
            streams = [number if end == -1 else end for number, end in enumerate(given)]
            directory = str(Path(cwd or ".").resolve(strict=True))
            order = {"arguments": arguments, "environment": environment, "directory": directory}
            order["leads_session"] = bool(others[20])
            self.pid = server.start(order, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)


class _Server:
    """The process that forks. It starts when it is first needed, and ends with this one."""

    def __init__(self) -> None:
        self._environment = choose_early(os.environ)
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def is_like(self, environment: Mapping[str, str]) -> bool:
        """Whether a fork would be the same as the program with this environment."""
        return sys.platform == "linux" and choose_early(environment) == self._environment

    def start(self, order: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Start a process, which becomes a child of this one. Returns its number."""
        text = marshal.dumps(order)
        with self._lock:
            if self._connection is None:
                self._connection = _connect(order["environment"])
            _adopt_orphans(1)
            try:
                socket.send_fds(self._connection, [len(text).to_bytes(HEAD, "big")], streams)
                self._connection.sendall(text)
                told = read(self._connection, HEAD + 1)  # MSG_WAITALL gives less after a stop of this process
            finally:
                _adopt_orphans(0)
        assert len(told) == HEAD + 1, "the fork server has ended"
        return int.from_bytes(told[:HEAD], "big")


def _connect(environment: Mapping[str, str]) -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        command = (sys.executable, str(Path(fork_server.__file__)), str(theirs.fileno()))
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
    atexit.register(process.wait)
    atexit.register(ours.close)  # the last one that is registered is the first one that is called
    return ours


def _adopt_orphans(is_so: int) -> None:
    """Whether a child's child becomes a child of this process when its parent ends."""
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, is_so, 0, 0, 0)


def choose_early(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that act before the program does."""
    return {name: value for name, value in environment.items() if name.startswith(AT_THE_START)}


_servers = defaultdict(_Server, trimtab=_Server())
"""By what they run: a module or a script."""
