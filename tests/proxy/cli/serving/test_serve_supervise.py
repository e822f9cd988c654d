"""`trimtab serve` with several workers: what the supervisor logs for all. The rest is tested end to end."""

import time
from collections.abc import Callable
from unittest.mock import Mock, call

import pytest
from support.model_learning import ListLog

from trimtab.proxy.cli.serving.serve import Screen, WorkerLog, _LatestConfig
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.proxy.telemetry.logs import LEVELS
from trimtab.proxy.telemetry.shared import Reloads


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


def test_each_line_of_a_worker_says_whose_it_is() -> None:
    """At every level. The line keeps its own fields."""
    for level in LEVELS:
        log = Mock()
        getattr(WorkerLog(log, 2), level)("event", key=1)
        assert log.mock_calls == [getattr(call, level)("event", worker=2, key=1)]
