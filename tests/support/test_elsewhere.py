"""Which tests read the tree is noted, and only these run elsewhere, with one test of each file."""

from pathlib import Path

import pytest
from support import elsewhere
from support.elsewhere import ROOT, is_of_tree

pytest_plugins = ["pytester"]

PLAIN = ("-p", "no:asyncio", "-p", "no:xdist")
READING = """
import os, pathlib, subprocess, sys
import pytest

HERE = pathlib.Path(__file__).parent

def test_first():
    pass

def test_second(tmp_path):
    (tmp_path / "own.txt").write_text("made by the test")
    (HERE / "imported.py").read_text()

@pytest.mark.parametrize("number", [1, 2])
def test_file(number):
    if number == 2:
        (HERE / "data.txt").read_text()

@pytest.fixture
def names():
    return os.listdir(HERE / "folder")

def test_folder(names):
    assert names == []

def test_program():
    subprocess.run([sys.executable, "-c", "pass", HERE / "data.txt"], check=True)

def test_last():
    subprocess.run([sys.executable, "-c", "pass"], check=True)
"""
FOUND = ["test_file[2]", "test_folder", "test_program"]


@pytest.fixture
def tree(pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with a file of data, an empty folder, and two files of tests."""
    pytester.makepyfile(test_reading=READING, test_other="def test_one(): pass\n\ndef test_two(): pass", imported="")
    (pytester.path / "data.txt").write_text("data")
    (pytester.path / "folder").mkdir()
    monkeypatch.setattr(elsewhere, "READ", (pytester.path,))
    return pytester.path


def test_what_reads_the_tree_is_noted_and_run_elsewhere(pytester, tree: Path, tmp_path: Path) -> None:
    """Of each file the first test is run, too. Reading what a test has made, or code, is no reading."""
    notes = tmp_path / "notes"
    pytester.inline_run(*PLAIN, "--note-readers", notes, plugins=[elsewhere]).assertoutcome(passed=9)
    assert notes.read_text().splitlines() == [f"test_reading.py::{name}" for name in FOUND]

    ran = pytester.inline_run(*PLAIN, "--readers", notes, plugins=[elsewhere])
    names = [report.nodeid for report in ran.getreports("pytest_runtest_logreport") if report.when == "call"]
    chosen = ["test_first", *FOUND]
    assert names == ["test_other.py::test_one", *(f"test_reading.py::{name}" for name in chosen)]


@pytest.mark.parametrize(
    ("path", "is_so"),
    [
        (ROOT / "README.md", True),
        (str(ROOT.parent / "shared/data/any.json").encode(), True),
        (ROOT / ".venv/bin/python", False),
        (ROOT.parent / "other/any", False),
        (3, False),
    ],
)
def test_what_a_clone_does_not_bring_along_is_no_part_of_the_tree(path: object, is_so) -> None:
    assert is_of_tree(path) == is_so
