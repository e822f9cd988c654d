"""`-n N`: pytest collects the tests once, and N forks of that process run them.

Each takes the next few tests of a module when it has run those it has; what takes long comes first. The process that
has collected reports. As pytest-xdist does it, each process collects all tests: longer than many quick tests take.
"""

import itertools
import os
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

MOST = 40
"""The most tests that a process takes at once. Chosen: few, for all to end together; many share a module's fixtures."""

STOPPED = 2**62
"""Of the groups, when no test is to be started any more."""

FORK = get_context("fork")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("processes")
    group._addoption("-n", dest="processes", type=int, default=0, metavar="N", help="run the tests in N processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    number = session.config.getoption("processes")
    if number < 1 or session.testsfailed or session.config.option.collectonly:
        return None
    groups, taken = group_items(session.items), FORK.Value("q", 0)
    running = dict(_start(session, groups, taken, name) for name in range(number))
    try:
        _follow(session, set(running), taken)
    finally:
        taken.value = STOPPED
        for pid in running.values():
            os.waitpid(pid, 0)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def _follow(session: pytest.Session, pipes: set[Connection], taken: Any) -> None:
    """Report what the processes send. A test whose process ended before it fails."""
    left, why = dict(enumerate(session.items)), "the process that had taken this test died"
    while pipes:
        for pipe in wait(pipes):
            try:
                number, told = pipe.recv()
            except EOFError:
                number, told = None, why
            if number is None:
                why = told or why
                pipes.remove(pipe)
            else:
                left.pop(number, None)
                _report(session.items[number], told)
        if session.shouldfail or session.shouldstop:
            taken.value, left = STOPPED, {}
    for item in left.values():
        lost = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        _report(item, [item.config.hook.pytest_report_to_serializable(config=item.config, report=lost)])


def _report(item: pytest.Item, reports: Sequence[dict[str, Any]]) -> None:
    hook, config = item.config.hook, item.config
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for data in reports:
        report = hook.pytest_report_from_serializable(config=config, data=data)
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def group_items(items: Sequence[pytest.Item]) -> list[list[int]]:
    """The tests' numbers, in groups of one module, slow ones first."""
    marks = ("slow", "moderate")
    paces = [next((pace for pace, mark in enumerate(marks) if item.get_closest_marker(mark)), 2) for item in items]
    numbers = sorted(range(len(items)), key=paces.__getitem__)
    modules = itertools.groupby(numbers, key=lambda number: (paces[number], items[number].path))
    whole = [list(module) for _, module in modules]
    return [module[start : start + MOST] for module in whole for start in range(0, len(module), MOST)]


def _start(session: pytest.Session, groups: Sequence[Sequence[int]], taken: Any, name: int) -> tuple[Connection, int]:
    folders = session.config._tmp_path_factory
    folder = folders.getbasetemp() / f"process{name}"
    ours, theirs = FORK.Pipe(duplex=False)
    if pid := os.fork():
        theirs.close()
        return ours, pid
    try:
        folder.mkdir(mode=0o700)
        folders._basetemp = folder
        capture = session.config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # the files are the other processes', too
        capture.start_global_capturing()
        capture.suspend_global_capture()
        session.config.pluginmanager.register(_Run(), "process")
        _run(session, groups, taken, theirs)
        theirs.send((None, ""))
    except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
        theirs.send((None, traceback.format_exc()))
    finally:
        os._exit(0)


def _run(session: pytest.Session, groups: Sequence[Sequence[int]], taken: Any, pipe: Connection) -> None:
    mine = _take(groups, taken)
    number = next(mine, None)
    try:
        while number is not None:
            item, number_after = session.items[number], next(mine, None)
            following = None if number_after is None else session.items[number_after]
            reports = item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            pipe.send((number, reports))
            number = number_after
    finally:
        session._setupstate.teardown_exact(None)


def _take(groups: Sequence[Sequence[int]], taken: Any) -> Iterator[int]:
    while True:
        with taken.get_lock():
            group, taken.value = taken.value, taken.value + 1
        if group >= len(groups):
            return
        for number in groups[group]:
            if taken.value >= STOPPED:
                return
            yield number


class _Run:
    """Of a process that runs tests: it reports nothing itself."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> list[dict[str, Any]]:
        """Run a test, in place of pytest's own hook."""
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        hook = item.config.hook
        return [hook.pytest_report_to_serializable(config=item.config, report=report) for report in reports]
