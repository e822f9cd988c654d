"""Of logs, failures, their places and totals are kept."""

from itertools import product
from string import ascii_lowercase

import pytest
from support.builders import count
from support.results import shorten_text

from trimtab.rules.results.excerpt import scores
from trimtab.rules.results.excerpt.scores import score_log

NOISE = [f"[{number}/900] Building CXX object src/module_{number % 37}.o in {number % 13} ms" for number in range(900)]
TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/srv/app/main.py", line 40, in main',
    "    run(job)",
    '  File "/srv/app/jobs.py", line 17, in run',
    "    total = job.size / job.count",
    "ZeroDivisionError: division by zero",
]
COMPILER = [
    "src/parse.c:120:9: error: 'struct token' has no member named 'lenght'",
    "  120 |     tok->lenght = 0;",
    "      |          ^~~~~~",
]
PYTEST = [
    "=================================== FAILURES ===================================",
    "____________________________ test_sum_of_two_prices ____________________________",
    "    def test_sum_of_two_prices():",
    ">       assert total([1, 2]) == 4",
    "E       assert 3 == 4",
    "tests/test_prices.py:31: AssertionError",
]
SUMMARY = [
    "=========== 1 failed, 899 passed in 12.31s ===========",
    "make: *** [Makefile:10: test] Error 1",
    "exit status 2",
]
MATTERS = {
    "traceback": TRACEBACK,
    "compiler": COMPILER,
    "test": PYTEST,
    "cargo": ["error[E0382]: borrow of moved value: `list`", "  --> src/lib.rs:88:5"],
    "go": ["--- FAIL: TestParse (0.00s)", "    parse_test.go:14: got 3, want 4"],
    "jest": ["  \u25cf cart \u203a adds an item", "    expect(received).toBe(expected)"],
    "server": ["2024-01-05T10:00:03Z FATAL database: connection refused on port 5432"],
    "rare": ["the cache was rebuilt because its version had changed"],
    "not ok": ["not ok 17 - parses an empty list"],
    "hunk": ["diff --git a/x.c b/x.c", "--- a/x.c", "+++ b/x.c", "@@ -3,2 +3,2 @@ int main", "-  int a;", "+  long a;"],
}  # fmt: skip


@pytest.mark.parametrize("limit", [300, 1000])
@pytest.mark.parametrize("place", [90, 450, 790])
@pytest.mark.parametrize("name", MATTERS)
def test_what_matters_is_kept(name: str, place: int, limit: int) -> None:
    """It is kept as a whole line, wherever it is among hundreds of lines that do not matter."""
    lines = [*NOISE[:place], *MATTERS[name], *NOISE[place:], *SUMMARY]
    short = shorten_text("\n".join(lines), limit, count).split("\n")
    for line in (*MATTERS[name], *SUMMARY):
        assert line in short


def test_of_a_traceback_the_innermost_frames_count_most() -> None:
    """The last two lines nearly as much as the exception, the next four half, and those further out ever less."""
    frames = [f"    frame {number} of it" for number in range(12)]
    scores = score_log([*NOISE[:9], TRACEBACK[0], *frames, TRACEBACK[-1], *NOISE[9:]])
    exception, inwards = scores[22], [scores[22 - distance] / scores[22] for distance in range(1, 14)]
    assert exception == max(scores.values())
    assert inwards[:6] == pytest.approx([0.85, 0.85, 0.5, 0.5, 0.5, 0.5])
    assert inwards[6:12] == pytest.approx([0.3 / (1 + distance / 8) for distance in range(7, 13)])
    assert inwards[12] >= 0.5  # the line that says what follows


def test_the_first_error_is_found_among_warnings() -> None:
    """Hundreds of warnings, all of one kind, before and after it."""
    warnings = [f"src/old_{number % 40}.c:{number}:5: warning: unused variable 'v{number}'" for number in range(600)]
    errors = [f"src/new.c:{number}:1: error: unknown type name 'u{number}'" for number in (10, 30, 50)]
    lines = [*warnings[:200], errors[0], *warnings[200:400], *errors[1:], *warnings[400:], "make: *** [all] Error 2"]
    short = shorten_text("\n".join(lines), 300, count).split("\n")
    assert errors[0] in short
    assert "make: *** [all] Error 2" in short


def test_a_passing_test_named_like_an_error_is_no_signal() -> None:
    """Among many tests, the one that failed is kept, whatever the others are called."""
    names = ["error", "exception", "failure", "timeout", "invalid_input", "missing_file", "fatal", "panic"]
    lines = [f"tests/test_{name}.py::test_{name}_{number} PASSED" for number in range(60) for name in names]
    lines[333] = "tests/test_plain.py::test_plain FAILED"
    scores = score_log(lines)
    assert max(scores, key=scores.__getitem__) == 333
    assert all(score < scores[333] / 2 for index, score in scores.items() if abs(index - 333) > 5)


def test_a_shape_that_occurs_once_is_news() -> None:
    """Among lines that differ in their numbers only."""
    lines = [f"worker {number % 16} took job {number} in {number % 31} ms" for number in range(3000)]
    lines[1234] = "worker 3 was replaced after it had stopped to answer"
    scores = score_log(lines)
    assert max(scores, key=scores.__getitem__) == 1234


def test_lines_of_time_are_read_without_it() -> None:
    """Times at the start of a log's lines do not hide errors."""
    lines = [
        f"2024-01-05 10:{number // 60:02}:{number % 60:02} INFO request {number} was served" for number in range(900)
    ]
    lines[500] = "2024-01-05 10:08:20 ERROR request 500: no space left on device"
    scores = score_log(lines)
    assert max(scores, key=scores.__getitem__) == 500


def test_tracebacks_without_end_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every line begins a traceback, each traceback has only the frames before the next one."""
    looked_at: list[str] = []
    is_frame = scores._is_frame
    monkeypatch.setattr(scores, "_is_frame", lambda line: (looked_at.append(line), is_frame(line))[1])
    lines = [" Traceback (most recent call last)"] * 2000
    score_log(lines)
    assert 0 < len(looked_at) <= 2 * len(lines)


def test_every_line_that_matters_outweighs_all_that_do_not() -> None:
    """Among lines of one shape, and among lines of different shapes. An empty line has no score."""
    telling = [*TRACEBACK, *COMPILER, *PYTEST, *SUMMARY]
    varied = [f"the {one}{other} of {other}{one} was {one * 3}ed" for one, other in product(ascii_lowercase, repeat=2)]
    for noise in (NOISE, varied):
        lines = [*noise, *telling, ""]
        scores = score_log(lines)
        assert set(scores) <= set(range(len(lines) - 1))
        noisy = max((score for index, score in scores.items() if index < len(noise)), default=0.0)
        assert min(scores[index] for index in range(len(noise), len(lines) - 1)) > 5 * noisy
