"""Slow tests are listed, and the check finds those that are not."""

import re
from pathlib import Path

import pytest
from support import slow_tests
from support.slow_tests import LIMITS, LIST, find_section, read_list

TESTS = Path(__file__).parents[1]
LISTED = "# why\n[slow]\ntests/test_a.py::test_one # much\ntests/test_b.py\n\n[moderate]\ntests/test_a.py::test_two\n"

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("nodeid", "section"),
    [
        ("tests/test_a.py::test_one", "slow"),
        ("tests/test_a.py::test_one[a::b[c]-\n]", "slow"),
        ("tests/test_a.py::test_two[1]", "moderate"),
        ("tests/test_a.py::test_two_more", None),
        ("tests/test_b.py::test_any", "slow"),
        ("tests/test_c.py::test_one", None),
    ],
)
def test_a_name_in_the_list_means_a_function_or_a_file(nodeid, section):
    assert find_section(read_list(LISTED), nodeid) == section


def test_every_listed_test_exists():
    """A renamed test takes its line along. Each section is a marker with a limit."""
    listed = read_list(LIST.read_text("utf-8"))
    assert set(listed.values()) <= LIMITS.keys()
    gone = [name for name in listed if not _exists(*name.partition("::")[::2])]
    assert gone == []


def _exists(path: str, function: str) -> bool:
    file = TESTS.parent / path
    return file.is_file() and bool(re.search(rf"def {function}\(" if function else "", file.read_text("utf-8")))


@pytest.mark.parametrize(
    ("options", "listed", "status"),
    [("--check-slow", "", 1), ("--check-slow", "[moderate]\n{}", 1), ("--check-slow", "[slow]\n{}", 0), ("-q", "", 0)],
)
def test_the_check_fails_for_a_slow_test_that_is_not_listed(pytester, monkeypatch, tmp_path, options, listed, status):
    """And for no other; waiting is no processor time, and neither is what tests share."""
    file = pytester.makepyfile(
        """
        import time, pytest

        def work():
            end = time.process_time() + 0.2
            while time.process_time() < end:
                pass

        @pytest.fixture(scope="module")
        def shared():
            work()

        @pytest.fixture(scope="session")
        def ends_behind_the_last_test():
            yield
            work()

        @pytest.mark.parametrize("n", [1, 2])
        def test_work(n):
            if n == 2:
                work()

        def test_of_the_shared(shared, ends_behind_the_last_test):
            pass

        def test_wait():
            time.sleep(0.2)
        """
    )
    (tmp_path / "slow.txt").write_text(listed.format(f"{file.name}::test_work"), "utf-8")
    monkeypatch.setattr(slow_tests, "LIST", tmp_path / "slow.txt")
    monkeypatch.setattr(slow_tests, "FAILING", 0.1)
    ran = pytester.inline_run(options, "-p", "no:cacheprovider", "-p", "no:asyncio", plugins=[slow_tests])
    ran.assertoutcome(passed=4)
    assert ran.ret == status


def test_what_was_too_slow_is_measured_again_alone(pytester, monkeypatch, tmp_path):
    """The second run, of what failed, passes if it was not the test itself."""
    pytester.makepyfile(
        """
        import time

        def test_work():
            end = time.process_time() + 0.2
            while time.process_time() < end:
                pass

        def test_more():
            pass
        """
    )
    (tmp_path / "slow.txt").write_text("", "utf-8")
    monkeypatch.setattr(slow_tests, "LIST", tmp_path / "slow.txt")
    for limit_seconds, passed, status in ((0.1, 2, 1), (0.1, 1, 1), (1.0, 1, 0)):
        monkeypatch.setattr(slow_tests, "FAILING", limit_seconds)
        again = ("--last-failed", "--last-failed-no-failures", "none") if passed == 1 else ()
        ran = pytester.inline_run("--check-slow", "-p", "no:asyncio", *again, plugins=[slow_tests])
        ran.assertoutcome(passed=passed)
        assert ran.ret == status
