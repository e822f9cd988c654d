"""Which tests may end otherwise in a clone elsewhere: those that read the tree, or the data beside it.

`--note-readers=FILE` adds these tests to a file, each with its parameters. `--readers=FILE` runs only them, and of each
file of tests the first one: it shows that all that the file imports is there.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
READ = (ROOT, ROOT.parent / "shared")
MADE = frozenset({".venv", ".pytest_cache", ".hypothesis", "build", "__pycache__"})
"""Folders of the tree that no clone has."""
CODE = (".py", ".pyc")
PROPERTY = "reads the tree"
OPENED = frozenset({"open", "os.listdir", "os.scandir"})
"""Events of `sys.audit` whose first argument is a path."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("a clone elsewhere")
    group.addoption("--note-readers", type=Path, metavar="FILE", help="add the tests that read the tree to this file")
    group.addoption("--readers", type=Path, metavar="FILE", help="run these tests, and the first one of each file")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--note-readers"):
        config.pluginmanager.register(_Readers(path, is_worker=hasattr(config, "workerinput")))


@pytest.hookimpl(trylast=True)  # behind the markers' own selection
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if path := config.getoption("--readers"):
        readers = set(path.read_text("utf-8").splitlines())
        firsts = set({item.path: item for item in reversed(items)}.values())
        others = [item for item in items if item not in firsts and item.nodeid not in readers]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item in firsts or item.nodeid in readers]


def is_of_tree(path: object) -> bool:
    """Whether a clone has this file or folder, or whether it is beside the tree."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False
    place = Path(os.fsdecode(path)).absolute()
    return any(place.is_relative_to(folder) for folder in READ) and not MADE.intersection(place.parts)


def _is_whole(argument: object) -> bool:
    """Whether it is a path from the root on."""
    return isinstance(argument, (str, bytes, os.PathLike)) and Path(os.fsdecode(argument)).is_absolute()


class _Readers:
    """Notes each test that reads the tree itself, or hands a path in it to a program."""

    def __init__(self, file: Path, *, is_worker: bool) -> None:
        self._file, self._is_worker = file, is_worker
        self._has_read = False
        self._found: set[str] = set()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._has_read:
            return
        if event in OPENED:
            self._has_read = is_of_tree(arguments[0]) and not os.fsdecode(arguments[0]).endswith(CODE)
        elif event == "subprocess.Popen":
            _, command, directory, _ = arguments
            given = command[1:] if isinstance(command, (list, tuple)) else ()
            self._has_read = any(is_of_tree(each) for each in (*given, directory) if _is_whole(each))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._has_read = False
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[pytest.TestReport]:
        report = yield
        if self._has_read:
            report.user_properties.append((PROPERTY, True))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (PROPERTY, True) in map(tuple, report.user_properties):
            self._found.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._has_read = True  # nothing more is noted; what listens to events cannot be removed
        if not self._is_worker:
            with self._file.open("a", encoding="utf-8") as file:
                file.writelines(f"{name}\n" for name in sorted(self._found))
