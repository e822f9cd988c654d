"""A command that runs in the terminal of this process, as if it had been started there.

Law: its standard streams are this process's own, untouched. A signal reaches it once. Its exit status is handed on.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

NOT_FOUND = 127
NOT_EXECUTABLE = 126
KILLED = 128
"""Exit statuses; the last one plus the signal's number. Source: POSIX, Shell & Utilities, 2.8.2."""
OF_THE_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
"""Signals that a terminal sends to each process in the foreground, so to the command, too."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class CannotRunError(Exception):
    """The command cannot be started; `status` is the exit status for that."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


async def run_child(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end. Returns its exit status as a shell does. Raises CannotRunError.

    Signals that only this process gets are passed on. Those of the keyboard are ignored here: the terminal sends them
    to the command as well.
    """
    pending: list[int] = []
    process: asyncio.subprocess.Process | None = None

    def pass_on(number: int) -> None:
        if number in OF_THE_KEYBOARD and _is_in_foreground():
            return
        if process is None:
            pending.append(number)
            return
        with suppress(ProcessLookupError):
            process.send_signal(number)

    loop = asyncio.get_running_loop()
    for one in (*OF_THE_KEYBOARD, *PASSED_ON):
        loop.add_signal_handler(one, pass_on, one)
    try:
        process = await _start(command, environment)
        for number in pending:
            pass_on(number)
        status = await process.wait()
    finally:
        for one in (*OF_THE_KEYBOARD, *PASSED_ON):
            loop.remove_signal_handler(one)
    return KILLED - status if status < 0 else status


async def _start(command: Sequence[str], environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(*command, env=environment)
    except FileNotFoundError as error:
        message = f"{command[0]}: command not found"
        raise CannotRunError(message, NOT_FOUND) from error
    except OSError as error:
        message = f"{command[0]}: cannot be run: {os.strerror(error.errno or 0)}"
        raise CannotRunError(message, NOT_EXECUTABLE) from error


def _is_in_foreground() -> bool:
    """Whether this process has a terminal, and is in the group that gets its keyboard's signals."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
