"""Coverage traces the tests themselves, of many cases some, of a property test the first examples. All of them run.

What is traced takes two to four times as long. So pytest's own work is not traced: to collect the tests, to run each of
them and to report it. Nor are programs that tests start, and tests without the marker `covered`. What is traced is what
executes a module of the program, each test, and its fixtures. Nearly all that the cases of a test reach is reached by a
dozen of them, from its whole list, and what its examples reach by the first ones; what generates them is not traced.
"""

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

import pytest

TRACED_EXAMPLES = 8
"""Chosen: a quarter of the examples of the profile `trimtab`."""
TRACED_CASES = 12
"""Chosen: the other cases take a sixth of the time of the module tests."""

_tracer = pytest.StashKey[Any]()
_begin_thread = threading.gettrace()
"""What traces a thread from its start, if coverage traces."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_tracer] = sys.gettrace()
    if hasattr(config, "workerinput"):  # it is traced by now: what its tests start shall not be
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[object]:
    with _untraced(session.config):
        return (yield)


def pytest_collection_finish(session: pytest.Session) -> None:
    functions: dict[str, list[pytest.Item]] = {}
    for item in session.items:
        if item.get_closest_marker("covered"):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in functions.values():
        for item in cases[:: -(-len(cases) // TRACED_CASES)]:
            item.stash[_tracer] = session.config.stash[_tracer]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[object]:
    with _untraced(session.config):
        return (yield)


@contextmanager
def _untraced(config: pytest.Config) -> Iterator[None]:
    """Trace only the program's modules, while they are executed, if coverage traces."""
    tracer = config.stash[_tracer]
    if not is_of_coverage(tracer):
        yield
        return
    execute = SourceFileLoader.exec_module

    def execute_traced(loader: SourceFileLoader, module: ModuleType) -> None:
        with tracing(tracer if module.__name__.startswith("trimtab") else None):
            execute(loader, module)

    with pytest.MonkeyPatch.context() as monkeypatch, tracing(None):
        monkeypatch.setattr(SourceFileLoader, "exec_module", execute_traced)
        yield


@contextmanager
def tracing(tracer: Any) -> Iterator[None]:
    """Trace by this function, or not at all, and afterwards as before; and so the threads that start meanwhile."""
    before, before_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(tracer)
    threading.settrace(_begin_thread if is_of_coverage(tracer) else None)  # type: ignore[arg-type]
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before_threads)  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Iterator[object]:
    holder = request.node if request.scope == "function" else request.config
    with tracing(holder.stash.get(_tracer, None)):
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with tracing(item.stash.get(_tracer, None)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Trace the test; of a property test, only the first examples."""
    tracer = pyfuncitem.stash.get(_tracer, None)
    if not getattr(pyfuncitem.obj, "is_hypothesis_test", False) or not is_of_coverage(tracer):
        with tracing(tracer):
            return (yield)
    handle = pyfuncitem.obj.hypothesis
    whole = handle.inner_test
    handle.inner_test = trace_first_calls(whole, tracer)
    try:
        return (yield)
    finally:
        handle.inner_test = whole


def is_traced(item: pytest.Item) -> bool:
    """Whether the coverage of this test is measured."""
    return is_of_coverage(item.stash.get(_tracer, None))


def is_of_coverage(tracer: object) -> bool:
    """Whether coverage traces."""
    return type(tracer).__module__.startswith("coverage")


def trace_first_calls(function: Callable[..., Any], tracer: Any) -> Callable[..., Any]:
    """Return the same function, but the first calls are traced and later ones are not. Call it untraced.

    Hypothesis derives the examples from the function's source and signature; both stay the same.
    """
    calls = 0

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > TRACED_EXAMPLES:
            return function(*arguments, **named)
        with tracing(tracer):
            return function(*arguments, **named)

    return call
