"""The clock that the bench moves."""

import time
from pathlib import Path

import pytest

from bench.sessions.replaying.clocked import FileClock


def test_it_is_ahead_by_what_it_was_moved(tmp_path: Path) -> None:
    clock, of_a_proxy = FileClock(tmp_path / "clock"), FileClock(tmp_path / "clock")
    clock.advance(0.0)
    assert of_a_proxy() == pytest.approx(time.time(), abs=60.0)
    clock.advance(4000.0)
    clock.advance(400.0)
    assert of_a_proxy() == pytest.approx(time.time() + 4400.0, abs=60.0)
