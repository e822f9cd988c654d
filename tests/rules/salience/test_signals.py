"""What a line says about how things went."""

import pytest
from builders import count_words

from rules.salience.signals import (
    ERROR,
    KEYWORDS,
    MAX_CHARS,
    NO_SIGNAL,
    SUMMARY,
    WARNING,
    find_marked,
    mask_names,
    read_signal,
    read_status,
)

ERRORS = [
    "error: unknown option",
    "src/a.c:3:9: error: expected ';'",
    "fatal: not a git repository",
    "ValueError: invalid literal",
    "thread 'main' panicked at src/main.rs:3:5",
    "FAILED tests/test_a.py::test_b - assert 1 == 2",
    "not ok 3 - adds",
    "ERROR 1045 (28000): Access denied",
    "Segmentation fault (core dumped)",
    "npm ERR! missing script: build",
]
SUMMARIES = [
    "3 passed, 1 failed in 0.2s",
    "Ran 12 tests in 0.01s",
    "exit status 2",
    "Tests: 4 failed, 9 total",
    "Found 3 errors",
]
PASSING = [
    "tests/test_error.py::test_failure PASSED",
    "ok 3 - reports an error",
    "test errors::panic_on_failure ... ok",
    "\u2713 shows an error when it failed",
    "PASS src/error.test.js",
]
PLAIN = ["the sky is blue", "errorless", "import os", "", "0123", "module.error_code = 3", "-Werror-less"]


@pytest.mark.parametrize("line", ERRORS)
def test_an_error_is_told(line: str) -> None:
    """As those say it that report one."""
    assert read_signal(line).weight >= ERROR


@pytest.mark.parametrize("line", SUMMARIES)
def test_a_summary_is_told(line: str) -> None:
    """Totals, and how it ended."""
    assert read_signal(line).weight >= SUMMARY


@pytest.mark.parametrize("line", [*PASSING, *PLAIN])
def test_what_passed_carries_no_signal(line: str) -> None:
    """Whatever it is called. Nor do words that only hold one of failure."""
    assert read_signal(line) is NO_SIGNAL


def test_a_place_makes_an_error_matter_more() -> None:
    """It can be acted upon. A warning matters less than an error."""
    assert read_signal("a.c:3:9: error: x").weight > read_signal("error: x").weight
    assert WARNING <= read_signal("a.c:3:9: warning: x").weight < ERROR


def test_lines_that_speak_alike_are_one_family() -> None:
    """Names, paths, quoted words and numbers do not tell them apart; words do."""
    one, two, other = (
        read_signal(f"a{number}.c:{number}: error: {text}")
        for number, text in ((1, "'x' undeclared"), (22, "'y' undeclared"), (3, "expected declaration"))
    )
    assert one.family == two.family != other.family
    assert mask_names("see src/a.c or 'b c' 12 times").split() == ["see", "\0", "or", "\0", "\0", "times"]


def test_a_request_is_told_by_its_status() -> None:
    """Only where it was answered by an error."""
    assert read_status('"GET /a HTTP/1.1" 503 12') == "503"
    assert read_status('"GET /a HTTP/1.1" 200 503') == ""


def test_marked_lines_are_those_with_a_keyword() -> None:
    """In any case, and with all that they hold."""
    lines = ["nothing", "an Error", "", "WARN: error", "\ud800 failed", "err", "or"]
    marked = find_marked(lines)
    for index, line in enumerate(lines):
        lower = line.encode("utf-8", "surrogatepass").lower()
        assert marked.get(index, 0) == sum(1 << rank for rank, word in enumerate(KEYWORDS) if word in lower)
    assert find_marked([]) == {}


@pytest.mark.parametrize(
    "unit", ["_", "_ ", "a", "a.", "a/", "1", "1:", "::", "(", '"', "'", "error ", "error:", " ", "-", "= ", "GET "]
)
def test_hostile_lines_are_read(unit: str) -> None:
    """With a signal or without, in front or behind."""
    for line in ((unit * MAX_CHARS)[:MAX_CHARS], ("error " + unit * MAX_CHARS)[:MAX_CHARS], "___ " + unit * 99 + "x"):
        assert read_signal(line).weight >= 0
        assert count_words(mask_names(line)) >= 0
