"""`-n N` runs each test once, in N processes, and says the same of it as one process would."""

import pytest
from support import processes

pytest_plugins = ["pytester"]

OPTIONS = ("-p", "no:xdist", "-p", "no:asyncio", "-p", "no:cacheprovider")
FILE = """
import os, pytest

@pytest.fixture(scope="module")
def shared():
    yield
    with open("ends", "a") as file:
        file.write(f"{os.getpid()}\\n")

@pytest.mark.parametrize("n", range(50))
def test_many(n, shared, tmp_path):
    with open("ran", "a") as file:
        file.write(f"{os.getpid()} {n} {tmp_path}\\n")

def test_bad():
    print("what it printed")
    assert 1 == 2

def test_left_out():
    pytest.skip("a reason")
"""


@pytest.fixture
def run(pytester):
    """Run a file's tests."""

    def run(file, *options):
        pytester.makepyfile(file)
        return pytester.inline_run(*OPTIONS, *options, plugins=[processes])

    return run


def test_each_test_runs_once_and_is_reported_as_by_one_process(run, pytester):
    ran = run(FILE, "-n", "3")
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    assert ran.countoutcomes() == [50, 1, 1]
    (failed,) = ran.getfailures()
    assert "assert 1 == 2" in failed.longreprtext
    assert failed.capstdout == "what it printed\n"
    (skipped,) = [report for report in ran.getreports("pytest_runtest_logreport") if report.skipped]
    assert "a reason" in str(skipped.longrepr)
    lines = [line.split() for line in (pytester.path / "ran").read_text("utf-8").splitlines()]
    assert sorted(int(number) for _, number, _ in lines) == list(range(50))
    assert len({folder for *_, folder in lines}) == 50
    ends = (pytester.path / "ends").read_text("utf-8").split()
    assert sorted(ends) == sorted({process for process, *_ in lines})


def test_a_process_that_dies_fails_what_it_had_taken_and_no_other_test(run):
    ran = run(
        "import os, pytest\n@pytest.mark.parametrize('n', range(95))\ndef test(n):\n    n == 81 and os._exit(3)\n",
        "-n",
        "2",
    )
    passed, failed = ran.countoutcomes()[0], ran.getfailures()
    assert (passed, len(failed)) == (81, 14)
    assert {report.longrepr for report in failed} == {"the process that had taken this test died"}


def test_behind_the_first_failure_the_run_ends_and_with_it_what_tests_share(run, pytester):
    ran = run(FILE.replace("tmp_path):\n", "tmp_path):\n    assert 0\n"), "-x", "-n", "1")
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    assert (pytester.path / "ends").exists()


def test_a_process_that_is_told_to_stop_takes_no_other_test():
    taken = processes.FORK.Value("q", 0)
    tests = processes._take([[0, 1], [2]], taken)
    assert next(tests) == 0
    taken.value = processes.STOPPED
    assert list(tests) == []


def test_what_takes_long_comes_first_and_a_group_is_of_one_module(pytester):
    pytester.makeini("[pytest]\nmarkers = slow\n moderate\n")
    quick = "import pytest\n@pytest.mark.parametrize('n', range(41))\ndef test(n):\n    pass\n"
    slow = "@pytest.mark.moderate\ndef test_m():\n    pass\n@pytest.mark.slow\ndef test_s():\n    pass\n"
    pytester.makepyfile(test_a=quick, test_b=f"import pytest\n{slow}")
    items, _ = pytester.inline_genitems(*OPTIONS)
    groups = [[items[number].name for number in group] for group in processes.group_items(items)]
    assert [len(group) for group in groups] == [1, 1, 40, 1]
    assert groups[:2] == [["test_s"], ["test_m"]]
