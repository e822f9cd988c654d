"""What is traced: tests with their fixtures, some of many cases, the first examples; not the work of pytest."""

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis.internal.reflection import function_digest
from support import tracing
from support.tracing import TRACED_CASES, TRACED_EXAMPLES, trace_first_calls

pytest_plugins = ["pytester"]


@pytest.fixture
def untraced() -> Iterator[None]:
    """No tracer, not even coverage's."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def _double(number: int) -> int:
    return 2 * number


def test_only_the_first_calls_are_traced(untraced: None) -> None:
    """All calls return the function's value. Behind each call nothing is traced."""
    traced: list[int] = []

    def tracer(frame, event, argument):
        if frame.f_code is _double.__code__ and event == "call":
            traced.append(frame.f_locals["number"])

    call = trace_first_calls(_double, tracer)
    for number in range(2 * TRACED_EXAMPLES):
        assert call(number) == 2 * number
        assert sys.gettrace() is None
    assert traced == list(range(TRACED_EXAMPLES))


def test_threads_are_traced_while_the_test_is(untraced: None, monkeypatch) -> None:
    """Also those that start later in a test that is not traced are not."""
    monkeypatch.setattr(tracing, "is_of_coverage", lambda tracer: tracer is not None)
    monkeypatch.setattr(tracing, "_begin_thread", lambda *_: None)
    seen = []

    def look() -> None:
        with ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(sys.gettrace).result() is not None)

    for tracer in (None, lambda *_: None, None):
        with tracing.tracing(tracer):
            look()
    assert seen == [False, True, False]


def test_a_failure_ends_the_tracing(untraced: None) -> None:
    """The tracer does not stay behind an exception."""
    with pytest.raises(TypeError):
        trace_first_calls(_double, lambda *_: None)(None)
    assert sys.gettrace() is None


def test_the_examples_are_the_same_as_without_a_tracer() -> None:
    """Hypothesis makes its seed from this digest."""
    assert function_digest(trace_first_calls(_double, None)) == function_digest(_double)


def test_tests_and_their_fixtures_are_traced_and_the_work_of_pytest_is_not(
    untraced: None, pytester, monkeypatch, capfd
) -> None:
    """A module of the program is traced while it is executed, whoever imports it; a test's module is not."""
    pytester.makepyfile(trimtab_part="import sys; traced = bool(sys.gettrace())")
    pytester.makeconftest(
        """
        import pytest, sys

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(report):
            print("told", report.when, bool(sys.gettrace()))
        """
    )
    pytester.makepyfile(
        """
        import pytest, sys
        imported = bool(sys.gettrace())
        import trimtab_part

        pytestmark = pytest.mark.covered

        @pytest.fixture
        def around():
            yield bool(sys.gettrace())
            print("ended", bool(sys.gettrace()))

        def test_it(around):
            print("module", imported, trimtab_part.traced, "fixture", around, "test", bool(sys.gettrace()))
        """
    )
    monkeypatch.setattr(tracing, "is_of_coverage", lambda tracer: tracer is not None)
    monkeypatch.syspath_prepend(pytester.path)
    sys.settrace(lambda *_: None)
    pytester.inline_run("-s", "-p", "no:asyncio", "-p", "no:xdist", plugins=[tracing])
    told = capfd.readouterr().out
    assert "module False True fixture True test True" in told
    assert "ended True" in told
    assert all(f"told {when} False" in told for when in ("setup", "call", "teardown"))
    assert sys.gettrace() is not None


def test_of_many_cases_a_dozen_is_traced_from_all_parts_of_the_list(
    untraced: None, pytester, monkeypatch, capfd
) -> None:
    """All cases run. What they share is traced, whichever of them comes first. What is not `covered` is not traced."""
    pytester.makepyfile(
        f"""
        import pytest, sys

        @pytest.fixture(scope="module")
        def shared():
            return bool(sys.gettrace())

        def test_slow():
            print("slow", bool(sys.gettrace()))

        @pytest.mark.covered
        @pytest.mark.parametrize("number", range({5 * TRACED_CASES}))
        def test_many(number, shared):
            print("many", number, shared, bool(sys.gettrace()))

        @pytest.mark.covered
        @pytest.mark.parametrize("number", range({TRACED_CASES}))
        def test_few(number):
            print("few", number, bool(sys.gettrace()))
        """
    )
    monkeypatch.setattr(tracing, "is_of_coverage", lambda tracer: tracer is not None)
    sys.settrace(lambda *_: None)
    pytester.inline_run("-s", "-p", "no:asyncio", "-p", "no:xdist", plugins=[tracing])
    told = re.findall(r"(?:slow|many|few) .*", capfd.readouterr().out)
    many = [f"many {number} True {number % 5 == 0}" for number in range(5 * TRACED_CASES)]
    few = [f"few {number} True" for number in range(TRACED_CASES)]
    assert told == ["slow False", *many, *few]
