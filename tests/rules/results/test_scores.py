"""Diffs and logs of commits."""

from itertools import product
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import count
from support.results import shorten_text

from trimtab.rules.results import scores
from trimtab.rules.results.scores import (
    find_rare,
    is_commits,
    is_matches,
    is_page,
    mark_changes,
    score_commits,
    score_listing,
    score_log,
    score_matches,
    score_prose,
)

DIFF = [
    "diff --git a/x.py b/x.py",
    "index 1..2 100644",
    "--- a/x.py",
    "+++ b/x.py",
    "@@ -1,9 +1,9 @@ def f():",
    " before",
    "-old",
    "+new",
    *[f"+more {number}" for number in range(20)],
    " behind",
]


def test_files_and_changes_come_before_what_is_around_them() -> None:
    """A diff ends at the first line that is no part of one. Empty lines that are added or removed do not matter."""
    lines = ["applying the patch", *DIFF, "done with it"]
    scores = mark_changes(lines)
    assert set(scores) == set(range(1, len(DIFF) + 1))
    assert scores[1] > scores[7] == scores[20] > scores[5] > scores[6] == scores[2] == 0
    assert mark_changes(["no diff"]) == {}
    scores = mark_changes([*DIFF[:5], "+", "-", "+ ", "+}", "-x"])
    assert [scores[at] for at in (5, 6, 7)] == [0, 0, 0]
    assert scores[8] == scores[9] > 0


def test_subjects_come_before_bodies() -> None:
    """Bodies of commits have no score; neither have names of files."""
    lines = [
        "commit 0123456789abcdef",
        "Author: A <a@b.c>",
        "",
        "    Read files once",
        "",
        "    It was slow to do it twice.",
        " src/read.py | 12 ++++++------",
        " src/a | b.bin | Bin 0 -> 9 bytes",
    ]
    scores = score_commits(lines)
    assert scores[3] > scores[0] > 0
    assert set(scores) == {0, 3}
    assert is_commits(lines * 3)
    assert not is_commits([*lines * 3, *DIFF])


# Of logs, failures, their places and totals are kept.

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
    "rare": ["the cache was rebuilt because its version had changed"],
    "not ok": ["not ok 17 - parses an empty list"],
    "hunk": ["diff --git a/x.c b/x.c", "--- a/x.c", "+++ b/x.c", "@@ -3,2 +3,2 @@ int main", "-  int a;", "+  long a;"],
}  # fmt: skip


@pytest.mark.parametrize("name", MATTERS)
def test_what_matters_is_kept(name: str) -> None:
    """It is kept as a whole line, wherever it is among hundreds of lines that do not matter."""
    for place in (90, 450, 790):
        lines = [*NOISE[:place], *MATTERS[name], *NOISE[place:], *SUMMARY]
        short = shorten_text("\n".join(lines), 300, count).split("\n")
        assert {*MATTERS[name], *SUMMARY} <= {*short}


def test_of_a_traceback_the_innermost_frames_count_most() -> None:
    """The last two lines nearly as much as the exception, the next four half, and those further out ever less."""
    frames = [f"    frame {number} of it" for number in range(12)]
    scores = score_log([*NOISE[:9], TRACEBACK[0], *frames, TRACEBACK[-1], *NOISE[9:]])
    exception, inwards = scores[22], [scores[22 - distance] / scores[22] for distance in range(1, 14)]
    assert exception == max(scores.values())
    assert inwards[:6] == pytest.approx([0.85, 0.85, 0.5, 0.5, 0.5, 0.5])
    assert inwards[6:12] == pytest.approx([0.3 / (1 + distance / 8) for distance in range(7, 13)])
    assert inwards[12] >= 0.5  # the line that says what follows


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


TEXT = [
    "# Title", "", "First line of a paragraph.", "Second one.", "Third one.", "", "Heading", "-------", "",
    "Another paragraph.",
]  # fmt: skip


def test_headings_come_before_openings_and_those_before_the_rest() -> None:
    """Headings have a sign before them, or a line under them. Tags alone say little."""
    scores = score_prose(TEXT)
    assert scores[0] == scores[6] > scores[2] == scores[9] > scores[3] >= scores[4] > 0
    assert 1 not in scores
    scores = score_prose(["<div><p>", "Some words", "<script src='a'></script>", "<h1>Title</h1>"])
    assert scores[3] > scores[1] > scores[0] == scores[2]


@pytest.mark.parametrize("line", ["<!DOCTYPE html>", "  <HTML>", "<?xml version='1.0'?>", "<head>"])
def test_a_page_begins_as_one(line: str) -> None:
    """A page is recognised by one of its first lines."""
    assert is_page(["", line])
    assert not is_page([*["words"] * 9, line])


def test_the_first_match_of_each_file_comes_first() -> None:
    """Before its context, and before hundreds of matches in another file; a folder before its entries."""
    texts = [f"a/many.py:{number}: call({number})\n" for number in range(1, 300)] + ["b/one.py:7: call(x)\n"]
    scores = score_matches(texts)
    assert scores[299] == scores[0]
    assert all(scores[299] > scores[index] for index in range(1, 299))
    texts = [
        "a.c-1-near\n",
        "a.c:2:hit\n",
        *(f"a.c-{number}-context {number}\n" for number in range(3, 20)),
        "a.c-20-\n",
    ]
    scores = score_matches(texts)
    assert max(scores, key=scores.__getitem__) == 1
    assert set(scores) == set(range(19))
    texts = ["src/a:\n", *(f"file_{number}\n" for number in range(50)), "\n", "src/b:\n", "only\n"]
    scores = score_listing(texts)
    assert scores[0] == scores[52] > scores[53] == scores[1] > scores[50]


def test_places_of_matches() -> None:
    """With a drive, with dashes, or a number alone. One message of a compiler among them makes it a log."""
    for place in ["a.py:3:", "C:\\a.py:3:", "dir/a-b.c:12:", "17:"]:
        lines = [f"{place}x = {number}" for number in range(5)]
        if place == "17:":
            lines = [f"{number * 3 + 1}:x" for number in range(5)]
        assert is_matches(lines)
    for line in ["a.c:3:1: error: x", "a.c:3: warning: x", "a.py:3:1: E501 long", "a.rs:3: error[E1]: x"]:
        assert not is_matches(["in file a.c", *(f"a.c:{number}: x" for number in range(9)), line])


# Lines by their shape.

LINES = st.lists(st.text(st.sampled_from("ab 1/.\"'=\ud800漢\t\r"), max_size=12), max_size=60)


def test_a_shape_is_that_of_words() -> None:
    """Numbers, names and quotes are no part of it, unless lines hardly vary otherwise."""
    lines = [f"read src/a{number}.c in {number} ms, as 'x{number}'" for number in range(9)]
    assert find_rare([*lines, "wrote src/b.c in 3 ms, as 'x'"]) == ([9], 0.8)
    lines = [f"done E{number % 2}" for number in range(400)]
    assert find_rare([*lines, "done E7"])[0] == [400]
    assert find_rare([*lines, "done E7", "done E7"])[0] == []


@given(LINES)
def test_a_rare_line_is_there_once(lines: list[str]) -> None:
    rare, told = find_rare(lines)
    assert all(lines.count(lines[index]) == 1 for index in rare)
    assert 0 <= told <= 1
