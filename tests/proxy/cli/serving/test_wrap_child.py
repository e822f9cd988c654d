"""A command in the terminal of this process; signals and a terminal are tested with `trimtab wrap`."""

import asyncio
import os
import signal
import sys

import pytest

from trimtab.proxy.cli.serving.wrap import CannotRunError, run_child


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(7)", 7), ("pass", 0), ("import os; os.kill(os.getpid(), 9)", 128 + 9)],
)
async def test_the_status_is_that_of_a_shell(code: str, status: int) -> None:
    assert await run_child([sys.executable, "-c", code], os.environ) == status


async def test_the_environment_is_the_given_one(tmp_path) -> None:
    """Nothing of this process's own is added."""
    code = "import os; raise SystemExit(os.environ.get('WHERE') == 'there' and 'HOME' not in os.environ)"
    assert await run_child([sys.executable, "-c", code], {"WHERE": "there"}) == 1


async def test_a_command_that_cannot_be_run_says_why(tmp_path) -> None:
    """The statuses are those of a shell."""
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for command, status in ((str(tmp_path / "absent"), 127), (str(plain), 126)):
        with pytest.raises(CannotRunError, match=command) as caught:
            await run_child([command], os.environ)
        assert caught.value.status == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
async def test_a_signal_to_this_process_reaches_the_command(number: signal.Signals) -> None:
    """The handlers are gone afterwards."""
    code = f"import os, signal; os.kill(os.getppid(), {number:d}); signal.pause()"
    before = signal.getsignal(number)
    assert await run_child([sys.executable, "-c", code], os.environ) == 128 + number
    assert signal.getsignal(number) == before


async def test_a_signal_that_comes_before_the_command_has_started_reaches_it(monkeypatch) -> None:
    start = asyncio.create_subprocess_exec

    async def hear_first(*arguments: object, **options: object) -> asyncio.subprocess.Process:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        return await start(*arguments, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", hear_first)
    code = "import signal; signal.alarm(30); signal.pause()"
    assert await run_child([sys.executable, "-c", code], os.environ) == 128 + signal.SIGTERM
