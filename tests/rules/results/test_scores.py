"""Diffs and logs of commits."""

from itertools import product
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.results import scores
from trimtab.rules.results.scores import (
    find_rare,
    is_commits,
    is_matches,
    is_numbered,
    is_page,
    is_source,
    mark_changes,
    score_commits,
    score_listing,
    score_log,
    score_matches,
    score_prose,
    score_source,
    strip_gutter,
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
    """Bodies of commits have no score; neither have names of files. With a diff it is no list of commits."""
    about = ["    It was slow to do it twice.", " src/read.py | 12 ++++++------", " src/a | b.bin | Bin 0 -> 9 bytes"]
    lines = ["commit 0123456789abcdef", "Author: A <a@b.c>", "", "    Read files once", "", *about]
    scores = score_commits(lines)
    assert scores[3] > scores[0] > 0
    assert set(scores) == {0, 3}
    assert is_commits(lines * 3)
    assert not is_commits([*lines * 3, *DIFF])


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


def test_of_a_traceback_the_innermost_frames_count_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those further out ever less. If every line begins one, each has only the frames before the next."""
    frames = [f"    frame {number} of it" for number in range(12)]
    told = score_log([*NOISE[:9], TRACEBACK[0], *frames, TRACEBACK[-1], *NOISE[9:]])
    exception, inwards = told[22], [told[22 - distance] / told[22] for distance in range(1, 14)]
    assert exception == max(told.values())
    assert inwards[:6] == pytest.approx([0.85, 0.85, 0.5, 0.5, 0.5, 0.5])
    assert inwards[6:12] == pytest.approx([0.3 / (1 + distance / 8) for distance in range(7, 13)])
    assert inwards[12] >= 0.5  # the line that says what follows
    looked_at: list[str] = []
    is_frame = scores._is_frame
    monkeypatch.setattr(scores, "_is_frame", lambda line: (looked_at.append(line), is_frame(line))[1])
    lines = [" Traceback (most recent call last)"] * 2000
    score_log(lines)
    assert 0 < len(looked_at) <= 2 * len(lines)


def test_every_line_that_matters_outweighs_all_that_do_not() -> None:
    """Among lines of one shape, of different shapes, and behind times. An empty line has no score."""
    telling = [*TRACEBACK, *COMPILER, *PYTEST, *SUMMARY]
    varied = [f"the {one}{other} of {other}{one} was {one * 3}ed" for one, other in product(ascii_lowercase, repeat=2)]
    for noise in (NOISE, varied):
        lines = [*noise, *telling, ""]
        scores = score_log(lines)
        assert set(scores) <= set(range(len(lines) - 1))
        noisy = max((score for index, score in scores.items() if index < len(noise)), default=0.0)
        assert min(scores[index] for index in range(len(noise), len(lines) - 1)) > 5 * noisy
    lines = [
        f"2024-01-05 10:{number // 60:02}:{number % 60:02} INFO request {number} was served" for number in range(900)
    ]
    lines[500] = "2024-01-05 10:08:20 ERROR request 500: no space left on device"
    scores = score_log(lines)
    assert max(scores, key=scores.__getitem__) == 500


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


def test_places_of_matches() -> None:
    """With a drive, with dashes, or a number alone; one message of a compiler makes it a log. A page begins as one."""
    for place in ["a.py:3:", "C:\\a.py:3:", "dir/a-b.c:12:", "17:"]:
        lines = [f"{place}x = {number}" for number in range(5)]
        if place == "17:":
            lines = [f"{number * 3 + 1}:x" for number in range(5)]
        assert is_matches(lines)
    for line in ["a.c:3:1: error: x", "a.c:3: warning: x", "a.py:3:1: E501 long", "a.rs:3: error[E1]: x"]:
        assert not is_matches(["in file a.c", *(f"a.c:{number}: x" for number in range(9)), line])
    for line in ["<!DOCTYPE html>", "  <HTML>", "<?xml version='1.0'?>", "<head>"]:
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


# Lines by their shape.

LINES = st.lists(st.text(st.sampled_from("ab 1/.\"'=\ud800漢\t\r"), max_size=12), max_size=60)


def test_rows_of_digits_times_and_dates_are_no_places() -> None:
    assert not is_matches([f"{number * 10:08}: 6865 6c6c" for number in range(50)])
    assert not is_matches([f"12:{number:02}:00 done" for number in range(50)])
    assert not is_matches([f"2024-01-{number:02} done" for number in range(1, 30)])


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


DEFINITIONS = [
    "def read(self):",
    "    async def read(self):",
    "class Reader:",
    "export default function read() {",
    "pub(crate) fn read(&self) -> u8 {",
    "func (r *Reader) Read() error {",
    "impl Reader {",
    "interface Reader {",
    "    public static final int read(String name) {",
    "static int read(const char *name)",
    "unsigned long read_all(void)",
    "const read = async (name) => {",
    "CREATE TABLE readers (",
    "template<typename T>",
]
STATEMENTS = [
    "    total = read(name)",
    "    return total",
    "# read the file",
    "    if total:",
    "int total = 3;",
    "}",
    "x(y);",
]


def test_a_definition_comes_before_any_statement() -> None:
    """In any language, within a class or not, after a line number or not: rising numbers are a gutter, others data."""
    for line in DEFINITIONS:
        for text in (line, f"   120\t{line}", f"120: {line}"):
            scores = score_source(["x = 1\n"] * 20 + [text])
            assert max(scores, key=scores.__getitem__) == 20
    for line in STATEMENTS:
        assert set(score_source([line, "def f():"])) == {1}
    for gutter in ("   12\t", "12: ", "12| ", "12\u2192", "12  "):
        assert strip_gutter(f"{gutter}x = 1") == "x = 1"
    assert strip_gutter("x = 12") == "x = 12"
    assert is_source(["def read(self):", "    return self.text"] * 9)
    assert is_numbered([f"{number}\tx" for number in range(50)])
    assert not is_numbered([f"{number * 7 % 5}\tx" for number in range(50)])
    assert not is_numbered(["x"] * 5)
