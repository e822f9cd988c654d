"""`trimtab serve`: how it starts, or says why it does not; what it does then is tested end to end."""

import asyncio
import gc
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
from support.command_line import run_trimtab

from trimtab.proxy.cli.serving.serve import LEAST_SECONDS, MOST_SECONDS, NEVER, collect_when_idle, is_due

pytestmark = pytest.mark.usefixtures("restored_log")


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


@pytest.fixture
def full_collections() -> Iterator[list[int]]:
    """One item for each full collection."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            seen.append(2)

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


@pytest.fixture
def _thawed() -> Iterator[None]:
    """No object is frozen at the start of the test. Afterwards the tests themselves are, as before."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.parametrize(
    ("seconds", "left_behind", "is_idle", "expected"),
    [
        (LEAST_SECONDS, 1, True, True),
        (LEAST_SECONDS - 1, 1, True, False),
        (LEAST_SECONDS, 1, False, False),
        (MOST_SECONDS, 1, False, True),
        (10 * MOST_SECONDS, 0, True, False),
    ],
    ids=["idle", "idle, but soon", "busy", "busy for long", "nothing new"],
)
def test_a_full_collection_waits_for_a_pause_but_not_for_ever(
    seconds: float, left_behind: int, *, is_idle: bool, expected: bool
) -> None:
    """None runs if no object has grown old."""
    assert is_due(seconds, left_behind, is_idle=is_idle) is expected


@pytest.mark.usefixtures("_thawed")
async def test_python_makes_no_full_collection_of_its_own(full_collections: list[int]) -> None:
    """The number of new objects does not matter. Young collections still run. At the end, the old settings are back."""
    before = gc.get_threshold()
    task = asyncio.ensure_future(collect_when_idle(lambda: False))
    await asyncio.sleep(0)
    assert gc.get_threshold()[2] == NEVER
    assert gc.get_freeze_count() > 0
    full_collections.clear()
    kept = []
    for _ in range(300_000):
        ring: list[object] = []
        ring.append(ring)
        kept.append([ring])
        del kept[:-1000]
    assert full_collections == []
    assert gc.get_count()[0] < 300_000
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("_thawed")
async def test_a_pause_is_used(full_collections: list[int]) -> None:
    """A full collection runs on the loop while no request is served."""
    collected = asyncio.Event()
    with mock.patch.multiple("trimtab.proxy.cli.serving.serve", LOOK_SECONDS=0.001, LEAST_SECONDS=0.0):
        task = asyncio.ensure_future(collect_when_idle(lambda: True))
        await asyncio.sleep(0)
        full_collections.clear()
        gc.callbacks.append(lambda phase, info: collected.set() if info["generation"] == 2 else None)
        try:
            gc.collect(1)  # something has grown old
            await asyncio.wait_for(collected.wait(), 30)
        finally:
            gc.callbacks.pop()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    assert full_collections
