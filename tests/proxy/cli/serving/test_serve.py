"""`trimtab serve`: how it starts, or says why it does not; what it does then is tested end to end."""

import asyncio
import gc
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock
from unittest.mock import Mock, call

import pytest
from support.command_line import run_trimtab
from support.golden import check_golden
from support.model_learning import ListLog

from trimtab.proxy.cli.options import usual_recordings
from trimtab.proxy.cli.serving import serve as serving
from trimtab.proxy.cli.serving.serve import (
    DRAWER,
    LEAST_SECONDS,
    MOST_SECONDS,
    NEVER,
    Screen,
    WorkerLog,
    _LatestConfig,
    collect_when_idle,
    is_due,
    warn_of_risks,
)
from trimtab.proxy.compaction.pool import CACHES_BYTES
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.proxy.server.reload import measure_caches
from trimtab.proxy.telemetry.logs import LEVELS, LiveLine
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.telemetry.shared import Reloads

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


def test_the_log_is_as_the_configuration_says_unless_an_option_does(started, monkeypatch) -> None:
    """On a terminal it clears the live line first, if there is one."""
    asked: list[Any] = []
    monkeypatch.setattr(serving, "configure_log", lambda *given, clears_line: asked.append((*given, clears_line)))
    monkeypatch.setattr(serving, "can_rewrite", lambda form: form == "text")
    configured = ("serve", "--set", "log={format: json, level: error}")
    for options in ((), ("--log-format", "text", "--log-level", "info")):
        assert run_trimtab(*configured, *options).exit_code == 0
    assert asked == [("error", "json", False), ("info", "text", True)]
    assert len(started) == 2


# What `trimtab serve` prints on a terminal. The live line is tested end to end, on a real one.


def test_the_lines_to_set_are_those_of_the_dialects_of_the_upstreams(capsys: pytest.CaptureFixture[str]) -> None:
    """A server whose dialects are not known may have both. The dashboard is named if there is one, its token never."""
    claude = "upstreams={claude: {base_url: 'https://api.anthropic.com/v1', credential: client}}"
    greetings = {}
    for settings in (
        ("upstream.base_url=https://api.openai.com/v1", "dashboard={enabled: false}"),
        ("upstream.base_url=https://api.anthropic.com/v1", "admin_token=PLANTED"),
        ("upstream.base_url=http://127.0.0.1:8000/v1",),
        ("upstream.base_url=https://ours.openai.azure.com/openai/v1",),
        (claude, "models=[{match: 'claude*', upstream: claude}]"),
    ):
        config = load_config(settings=settings, environment={})
        Screen(is_read=True).greet(config, "http://p", "http://pages")
        out, greetings[" ".join(settings)] = capsys.readouterr()
        assert out == ""
    assert "PLANTED" not in "".join(greetings.values())
    check_golden("commands/greeting", greetings)


async def test_nothing_is_printed_if_nobody_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The log in a file has no other lines."""
    screen = Screen()
    screen.greet(load_config(environment={}), "http://p", "http://pages")
    metrics = Metrics()
    metrics.requests["m", "chat", "200", "unchanged"] += 1
    async with screen.showing(metrics, ListLog()):
        pass

    assert capsys.readouterr() == ("", "")


def test_the_start_tells_that_text_is_written_to_a_folder(tmp_path: Path) -> None:
    log = ListLog()
    config = load_config(f"record: {{dir: {tmp_path}}}", environment={})
    Screen().announce(config, "http://p", "http://pages", log)
    assert log.warned == ["recording"]


def test_only_one_worker_shows_the_live_line() -> None:
    """All write to the same terminal."""
    screen = Screen(is_read=True, line=LiveLine())
    assert [screen.of(number).line is screen.line for number in (DRAWER, DRAWER + 1)] == [True, False]


class _Counting(LiveLine):
    """Counts instead of writing."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = self.ended = 0
        self.twice = asyncio.Event()

    def show(self, text: str) -> None:
        assert text
        self.shown += 1
        if self.shown == 2:
            self.twice.set()

    def end(self) -> None:
        self.ended += 1


async def _show(line: _Counting, requests: int) -> AsyncIterator[None]:
    metrics = Metrics()
    if requests:
        metrics.requests["m", "chat", "200", "unchanged"] += requests
    async with Screen(is_read=True, line=line).showing(metrics, ListLog()):
        yield


async def test_between_two_states_of_the_live_line_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last state is shown at the end, without one, and stays. Before the first request there is none."""
    monkeypatch.setattr(serving, "PAUSE_SECONDS", 60)
    for requests, last in ((0, 0), (3, 1)):
        line = _Counting()
        async for _ in _show(line, requests):
            for _ in range(20):  # more turns of the pool that reads the figures than one state needs
                await asyncio.to_thread(str)
            assert line.shown == 0
        assert (line.shown, line.ended) == (last, 1)

    monkeypatch.setattr(serving, "PAUSE_SECONDS", 0)
    again = _Counting()
    async for _ in _show(again, 3):
        await asyncio.wait_for(again.twice.wait(), 30)


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_is_told_when_requests_are_accepted(
    is_abstract: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the socket that it names: a file, or an abstract one. Without systemd nothing is told."""
    name = f"@trimtab-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name[1:]}" if is_abstract else name)
        systemd.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        Screen().announce(load_config(environment={}), "http://p", "http://p", ListLog())
        assert systemd.recv(64) == b"READY=1"
    Screen().announce(load_config(environment={}), "http://p", "http://p", ListLog())  # systemd has gone
    monkeypatch.delenv("NOTIFY_SOCKET")
    Screen().announce(load_config(environment={}), "http://p", "http://p", ListLog())


# With several workers: what the supervisor logs for all. The rest is tested end to end.


def make(*settings: str) -> Config:
    """A configuration."""
    return load_config(settings=settings, environment={})


def fail_with(error: Exception) -> Callable[[], Config]:
    """A file that cannot be read."""

    def load() -> Config:
        raise error

    return load


def test_workers_to_come_begin_with_what_was_reloaded() -> None:
    """Keys that take effect only with a restart keep their old values."""
    again, reloads = make("workers=3", "mode=off", "limits.drain_seconds=7"), Reloads(5.0)
    told = _LatestConfig(make("workers=2"), lambda: again, ListLog(), Screen(), reloads)
    assert told.reload()
    assert reloads.read() == (True, pytest.approx(time.time(), abs=60))
    assert (told.config.mode, told.config.workers) == ("off", 2)
    assert told.drain_seconds() == 7


@pytest.mark.parametrize(
    ("load", "event"),
    [
        (None, "nothing_to_reload"),
        (fail_with(ConfigError("mode: no\nnope: no")), "configuration_invalid"),
        (fail_with(RecursionError("PLANTED")), "reload_failed"),
    ],
)
def test_what_cannot_be_read_reaches_no_worker(load, event: str) -> None:
    """The error is logged without text that may be a key, and the previous configuration stays."""
    log, before, reloads = ListLog(), make("mode=off"), Reloads(5.0)
    told = _LatestConfig(before, load, log, Screen(), reloads)
    assert not told.reload()
    assert reloads.read() == (load is None, 5.0)
    assert told.config is before
    assert {line["event"] for line in log.lines} == {event}
    assert "PLANTED" not in str(log.lines)


@pytest.mark.parametrize(
    ("workers", "store", "is_told"), [(2, "memory", True), (1, "memory", False), (2, "sqlite", False)]
)
def test_several_workers_without_a_store_are_warned_that_they_share_nothing(
    workers: int, store: str, *, is_told: bool
) -> None:
    log = ListLog()
    warn_of_risks(make(f"store={store}"), log, workers)
    assert ("store_not_shared" in log.warned) is is_told


def test_each_worker_has_its_share_of_the_limits_and_of_the_caches_also_after_a_reload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, shared = make("limits.max_memory_bytes=1073741824"), Mock()
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(serving.SharedResources, "open", lambda *_: shared)
    monkeypatch.setattr(serving, "Supervisor", Mock())
    start = serving.start_workers(config, lambda: config, 2, ListLog(), Screen())
    assert isinstance(start, serving.WorkerStart)
    assert start.load is not None
    for part in (start.config, start.load()):
        assert part.limits.max_memory_bytes == config.limits.max_memory_bytes // 2
    assert start.compactors._scale == measure_caches(start.config) / CACHES_BYTES < 1


def test_each_line_of_a_worker_says_whose_it_is() -> None:
    """At every level. The line keeps its own fields."""
    for level in LEVELS:
        log = Mock()
        getattr(WorkerLog(log, 2), level)("event", key=1)
        assert log.mock_calls == [getattr(call, level)("event", worker=2, key=1)]
