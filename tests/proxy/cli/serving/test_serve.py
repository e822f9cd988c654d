"""`trimtab serve`: how it starts, or says why it does not; what it does then is tested end to end."""

import os
import socket
from pathlib import Path

import pytest
from support.command_line import run_trimtab

pytestmark = pytest.mark.usefixtures("restored_log", "loaded_vocabulary")


@pytest.mark.parametrize("name", ["TRIMTAB_LOG_LEVEL", "TRIMTAB_LOG_FORMAT"])
def test_the_environment_of_the_log_is_checked_like_its_options(name: str) -> None:
    """The message names the option for the variable, and its allowed values."""
    result = run_trimtab("serve", "--listen", "nowhere", **{name: "nonsense"})

    assert result.exit_code == 2
    assert f"--{name.removeprefix('TRIMTAB_').lower().replace('_', '-')}" in result.stderr
    assert "'nonsense' is not one of" in result.stderr


def test_serve_says_where_it_cannot_listen() -> None:
    """If the port is taken, the command ends with status 1 and a sentence, which names who has it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run_trimtab("serve", "--listen", address)

    assert result.exit_code == 1
    assert f"trimtab: cannot listen on {address}: " in result.stderr
    assert (f"by process {os.getpid()} (" in result.stderr) is Path("/proc/net/tcp").exists()
    assert "Traceback" not in result.stderr
