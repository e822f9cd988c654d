"""`trimtab serve`: how it starts, or says why it does not; what it does then is tested end to end."""

import asyncio
import gc
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from support.command_line import run_trimtab

from trimtab.proxy.cli.options import usual_recordings
from trimtab.proxy.cli.serving import serve as serving
from trimtab.proxy.cli.serving.serve import LEAST_SECONDS, MOST_SECONDS, NEVER, collect_when_idle, is_due

pytestmark = pytest.mark.usefixtures("restored_log")


def test_the_environment_of_the_log_is_checked_like_its_options() -> None:
    """The message names the option for the variable, and its allowed values."""
    for name, option in (("TRIMTAB_LOG_LEVEL", "--log-level"), ("TRIMTAB_LOG_FORMAT", "--log-format")):
        result = run_trimtab("serve", "--listen", "nowhere", **{name: "nonsense"})
        assert (result.exit_code, option in result.stderr) == (2, True)
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
    for _ in range(100_000):
        ring: list[object] = []
        ring.append(ring)
        kept.append([ring])
        del kept[:-1000]
    assert full_collections == []
    assert gc.get_count()[0] < 100_000
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


# `trimtab record` is `trimtab serve` with recordings; what it records is tested end to end.


@pytest.fixture
def started(monkeypatch) -> list[Any]:
    """The configurations with which a proxy would have started."""
    configs: list[Any] = []

    async def start(config: Any, *_: Any) -> None:
        configs.append(config)

    monkeypatch.setattr(serving, "_serve", start)
    return configs


@pytest.mark.parametrize("name", ["with: colon", "null", "#hash"])
def test_its_option_names_the_folder(name, started, tmp_path) -> None:
    """Also if the name of the folder looks like another value of YAML."""
    done = run_trimtab("record", "--dir", tmp_path / name, "--set", "record.keep=7", "--listen", "[::1]:0")
    assert done.exit_code == 0, done.output
    assert (started[0].record.dir, started[0].record.keep) == (str(tmp_path / name), 7)
    assert started[0].listen == "[::1]:0"


def test_the_folder_of_the_configuration_counts(started, tmp_path) -> None:
    """Unless an option names another one. A configuration that names none may still have the other keys."""
    config = tmp_path / "trimtab.yaml"
    config.write_text(f"record: {{dir: {tmp_path / 'own'}, keep: 5}}\n")
    assert run_trimtab("record", "--config", config).exit_code == 0
    assert run_trimtab("record", "--set", f"record.dir={tmp_path / 'set'}").exit_code == 0
    assert run_trimtab("record", "--config", config, "--dir", tmp_path / "other").exit_code == 0
    config.write_text("record: {keep: 6}\n")
    assert run_trimtab("record", "--config", config).exit_code == 0
    assert "trimtab record" in run_trimtab("inspect").stderr
    folders = [config.record.dir for config in started]
    assert folders == [str(tmp_path / "own"), str(tmp_path / "set"), str(tmp_path / "other"), str(usual_recordings())]
    assert [config.record.keep for config in started] == [5, 10_000, 5, 6]
