"""The picture of a replay."""

import itertools
import sys
from pathlib import Path

import pytest

from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.cli.records.run import MAX_POINTS, Series, draw


def _make_series() -> Series:
    series = Series()
    for number in range(3):
        series.begin()
        series.add(
            100 * number, {"recorded": 50}, {"recorded": {"trimtab": 1.0 * number, "nothing": 2.0, "summaries": 0.0}}
        )
    return series


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "beginning"), [("a.svg", b"<?xml"), ("a.png", b"\x89PNG")])
def test_a_picture_is_drawn(tmp_path: Path, name: str, beginning: bytes) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    draw(_make_series(), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(beginning)
    draw(Series(), tmp_path / name)


@pytest.mark.filterwarnings("error")
def test_a_legend_without_entries_is_left_out(tmp_path: Path) -> None:
    """Of a log no costs may be known, and no course."""
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    draw(Series(), tmp_path / "a.svg")
    series = Series()
    series.begin()
    series.add(100, {}, {})
    draw(series, tmp_path / "b.svg")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    with pytest.raises(StoppedError, match="No such file"):
        draw(_make_series(), tmp_path / "none" / "a.svg")


def test_without_the_extra_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(StoppedError, match=r"pip install 'trimtab\[plot\]'"):
        draw(_make_series(), tmp_path / "a.svg")


def test_however_many_requests_there_are_the_points_are_bounded_and_even() -> None:
    series = Series()
    for _ in range(5 * MAX_POINTS):
        if series.begin():
            series.add(1, {}, {})
    numbers = [point.number for point in series.points]
    assert MAX_POINTS // 4 < len(numbers) < MAX_POINTS
    assert len({after - before for before, after in itertools.pairwise(numbers)}) == 1


def test_each_of_a_few_requests_is_a_point() -> None:
    series = Series()
    for tokens in (5, 6, 7):
        assert series.begin()
        series.add(tokens, {"recorded": tokens}, {})
    assert [(point.number, point.original_tokens) for point in series.points] == [(1, 5), (2, 6), (3, 7)]
