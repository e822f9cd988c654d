"""Which tests are slow: markers out of the list `tests/slow.txt`, and a check that keeps the list honest.

The list names functions, with all their parameters, or whole files. A test's time is the processor's, not the clock's:
that of its process and of the processes that it has waited for, without the fixtures that it shares with other tests.
"""

import resource
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from support.tracing import is_traced

LIST = Path(__file__).parents[1] / "slow.txt"
MODULES = ("tests/rules/", "tests/proxy/")
LAWS = "tests/rules/laws/"
LIMITS = {"slow": 1.0, "moderate": 0.25}
"""The sections of the list, which are the markers, and the seconds from which on a test belongs there."""
UNCOVERED = {*LIMITS, "measured"}

FAILING = 5.0
"""An unlisted test fails the check from here on: five times the limit, for machines that are slow or busy."""

TRACED = 3.0
"""How many times as long a test takes at most whose coverage is measured."""

PROPERTY = "processor seconds"

_used = pytest.StashKey[float]()
_shared = pytest.StashKey[float]()
_is_last = pytest.StashKey[bool]()


def read_list(text: str) -> dict[str, str]:
    """Map each listed name to its section."""
    sections = {}
    section = ""
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        if line.startswith("["):
            section = line.strip("[]")
        else:
            sections[line] = section
    return sections


def find_section(listed: Mapping[str, str], nodeid: str) -> str | None:
    """Find the section of a test: that of its function or of its file."""
    path = nodeid.partition("::")[0]
    return listed.get(strip_parameters(nodeid)) or listed.get(path)


def strip_parameters(nodeid: str) -> str:
    """Name the function of a test."""
    return nodeid.partition("[")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("slow tests")
    group.addoption(
        "--check-slow", action="store_true", help="fail if a test is slow that tests/slow.txt does not list"
    )
    group.addoption("--write-times", type=Path, metavar="FILE", help="write each test's seconds of processor time")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Times(config))


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    listed = read_list(LIST.read_text("utf-8"))
    for item in items:
        if section := find_section(listed, item.nodeid):
            item.add_marker(section)
        is_of_module = item.nodeid.startswith(MODULES) and not item.nodeid.startswith(LAWS)
        if is_of_module and UNCOVERED.isdisjoint(mark.name for mark in item.iter_markers()):
            item.add_marker("covered")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    item.stash[_used] = _processor_seconds()
    item.stash[_is_last] = nextitem is None
    item.stash[_shared] = 0.0
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> Iterator[object]:
    before = _processor_seconds()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            request._pyfuncitem.stash[_shared] += _processor_seconds() - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[pytest.TestReport]:
    report = yield
    if call.when == "call" or (call.when == "teardown" and _ends_alone(item)):
        seconds = _processor_seconds() - item.stash[_used] - item.stash[_shared]
        if item.get_closest_marker("hypothesis"):
            seconds *= settings.get_profile("quick").max_examples / settings().max_examples
        if is_traced(item):
            seconds /= TRACED
        report.user_properties.append((PROPERTY, seconds))
    return report


def _ends_alone(item: pytest.Item) -> bool:
    """Whether the test's end is that of no fixture that other tests used. A process's last test ends what all share."""
    if item.stash[_is_last]:
        return False
    definitions = item._fixtureinfo.name2fixturedefs.values()
    return not any(one.scope in {"module", "class", "package"} for group in definitions for one in group)


def _processor_seconds() -> float:
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class _Times:
    """The times of all tests, in the process that collects the reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._times: dict[str, float] = {}
        self._listed = read_list(LIST.read_text("utf-8"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY:
                self._times[report.nodeid] = max(value, self._times.get(report.nodeid, 0.0))

    @pytest.hookimpl(trylast=True)  # behind the cache's own note of what failed
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self._config, "workerinput"):
            return
        if path := self._config.getoption("--write-times"):
            lines = [f"{seconds:8.3f} {name}\n" for name, seconds in self._times.items()]
            path.write_text("".join(sorted(lines, reverse=True)), "utf-8")
        missing = self._find_missing()
        if missing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if missing and (cache := getattr(self._config, "cache", None)) is not None:
            # `--last-failed` measures them again, alone: a program of an earlier test may be counted here.
            again = [name for name in self._times if strip_parameters(name) in missing]
            cache.set("cache/lastfailed", {**cache.get("cache/lastfailed", {}), **dict.fromkeys(again, True)})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, seconds in self._find_missing().items():
            terminalreporter.write_line(f"SLOW {name}: {seconds:.1f} s of processor time; list it in tests/slow.txt")

    def _find_missing(self) -> dict[str, float]:
        """Find the functions that are slow and not listed, and their times."""
        if not self._config.getoption("--check-slow"):
            return {}
        return {
            strip_parameters(name): seconds
            for name, seconds in self._times.items()
            if seconds > FAILING and find_section(self._listed, name) != "slow"
        }
