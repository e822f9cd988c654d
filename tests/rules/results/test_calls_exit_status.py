"""Whether the text of a result reports a failure."""

import pytest

from trimtab.rules.results.calls import EDGE_CHARS, says_failure

FAILED = [
    "exit code: 1",
    "ok\n<returncode>1</returncode>\n<output>",
    "<returncode>-11</returncode>",
    "Exit code 2\nfoo",
    "Exit Code: 3\nSignal: (none)",
    "exit code: 10",
    "exit code -1",
    "exit status 1",
    "Exit status: 255",
    "Return code: 1",
    "returncode: 3",
    "CompletedProcess(args=['x'], returncode=1, stdout='')",
    "[The command completed with exit code 2.]",
    "[Command finished with exit code 1]",
    "<system>ERROR: Command failed with exit code: 3.</system>",
    "Command exited with code 1",
    "Process exited with code 127",
    "The script exited with code 3, then",
    "process finished with exit code 137 (interrupted by signal 9)",
    "error: command failed with exit code 1: npm test",
    "make failed with status 2",
    "returned non-zero exit status 1.",
    "(exit code 2)",
    "x\nexit status 2\nFAIL\tpkg 0.01s",
    "exit code: 0x1f",
    '{"exit_code": 1, "output": "x"}',
    '{"output":"x","metadata":{"exitCode":1}}',
    '{"content":[],"isError":true}',
    "npm test (exit 1)",
    "exit 1",
    "[exit 1]",
    "exit: 2",
    "command failed: exit 137",
    "Exit code: 1 (SIGHUP)",
    "process exited (1)",
    "rc=1",
    "failed: [web] => (rc=2)",
    "make: *** [all] Error 2",
    "gmake[1]: *** [Makefile:3: all] Error 127",
    "Killed",
    "Segmentation fault (core dumped)",
    "run.sh: line 3: 1234 Aborted (core dumped) ./a.out",
    "sh: line 1: 77 Segmentation fault      (core dumped) ./a.out",
    "Segmentation fault",
    "npm ERR! errno 1",
    "npm error code E404",
]
WELL = [
    "", "exit code: 0", "exit code 00", "exit code: 0x0", "Exit code: none", "exit code", "exit code 0\n1",
    "<returncode>0</returncode>", "[The command completed with exit code 0.]", "process exited with code 0",
    "exited with code 0 after 10 s", '"exit_code": 0, "n": 1', "'isError': false", "the exit code is 1 when it fails",
    "returns exit code 1 if the file is missing", "Exit code 1 means failure, 2 means usage", "exit code 0.5",
    "exit codes: 1", "exit_codes = [1]", "def exit_code(x): return 1", "sys.exit(1)", "status code 1",
    "returned status 200 ok", "Request completed with status 200", "It finished with code that works",
    "return value: 1", "return value = 42", "'return_value': 7", "return status: 200", '"return_code": 200',
    "    return value 1", "    exit 1", "exit 0", "(exit 0)", "rc=0", "rc=1 if failed else 0", "arc=1",
    "process exited (0)", "exit 1 of 3", "Killed the old process", "A Segmentation fault is what happens then",
    "make: Nothing to be done for 'all'.", "web  Exited (1) 3 hours ago", "npm warn deprecated x",
]  # fmt: skip


@pytest.mark.parametrize("text", FAILED)
def test_an_exit_code_that_is_not_0_is_a_failure(text: str) -> None:
    """In the forms of shells, harnesses and tools, in the first and in the last lines of a text."""
    rest = "a line of output\n" * 200
    assert says_failure(text)
    assert says_failure(f"{text}\n{rest}")
    assert says_failure(f"{rest}{text}")


@pytest.mark.parametrize("text", WELL)
def test_prose_and_0_are_none(text: str) -> None:
    """Texts that only mention exit codes, and reports of success."""
    assert not says_failure(text)
    assert not says_failure(f"{text}\nmore\n")


def test_what_stands_in_the_middle_was_only_read() -> None:
    """A printed log may report failures of its own."""
    edge = "a" * EDGE_CHARS
    assert not says_failure(f"{edge}\nexit code: 1\n{edge}")
