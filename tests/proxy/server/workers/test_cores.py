"""The number of worker processes."""

import os
from pathlib import Path

import pytest

from proxy.config.load import load_config
from proxy.server.workers import cores
from proxy.server.workers.cores import count_cores, count_workers


@pytest.fixture
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which this process may use sixteen cores."""
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


def make_quota(directory: Path, text: str) -> Path:
    """The file with a container's processor quota."""
    file = directory / "cpu.max"
    file.write_text(text, encoding="ascii")
    return file


@pytest.mark.usefixtures("sixteen_cores")
@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000\n", 16), ("200000 100000\n", 2), ("150000 100000\n", 2), ("5000 100000", 1), ("", 16), ("1 0", 16)],
)
def test_a_container_counts_what_it_may_use(quota: str, expected: int, tmp_path: Path) -> None:
    """The machine's cores do not count. A part of a core counts as one, and an invalid file does not count."""
    assert count_cores(make_quota(tmp_path, quota)) == expected


@pytest.mark.usefixtures("sixteen_cores")
def test_without_a_file_the_cores_count(tmp_path: Path) -> None:
    """Outside of containers, there is no such file."""
    assert count_cores(tmp_path / "none") == 16


def test_where_a_process_cannot_be_bound_to_cores_all_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MacOS is such a system."""
    monkeypatch.delattr(cores.os, "sched_getaffinity", raising=False)
    assert count_cores(tmp_path / "none") == os.cpu_count()


@pytest.mark.usefixtures("sixteen_cores")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["workers=3"], 3),
        (["workers=auto"], 4),
        (["workers=auto", "limits.max_memory_bytes=17179869184"], 16),
        (["workers=auto", "limits.max_memory_bytes=536870912"], 1),
        ([], 1),
    ],
)
def test_auto_takes_no_more_than_there_is_memory_for(settings: list[str], expected: int, tmp_path: Path) -> None:
    """A configured number is used as it is."""
    assert count_workers(load_config(settings=settings, environment={}), tmp_path / "none") == expected
