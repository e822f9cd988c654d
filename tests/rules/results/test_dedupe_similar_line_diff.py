"""Diffs: exact for any lines, in a form that models know."""

from hypothesis import given
from hypothesis import strategies as st
from support.checker import expand
from support.steps import count_steps

from trimtab.rules.results.dedupe import find_hunks, write_diff

_LINES = st.sampled_from(
    ["", "a", "b", "c", "d", "-a", "+b", "@@ -1,1 +1,1 @@", "[trimtab: same as the tool result 1 back]",
     "a\r", "\ud800", "a\x85b\u2028c", " a"]
)  # fmt: skip
_TEXTS = st.lists(_LINES, max_size=12).map("\n".join)


@given(old=_TEXTS, new=_TEXTS)
def test_the_new_text_comes_back_to_the_letter(old: str, new: str) -> None:
    """For any lines, also those that look like a hunk's header."""
    written = write_diff(old, new)
    assert (written == "") == (old == new)
    if written:
        assert expand([old], "header\n" + written) == [new]


@given(old=_TEXTS, edits=st.lists(st.tuples(st.integers(0, 400), _LINES), max_size=4))
def test_few_edits_make_a_short_diff(old: str, edits: list[tuple[int, str]]) -> None:
    """If all other lines are different from each other, the diff has only changed lines."""
    lines = [f"{number}: {line}" for number, line in enumerate((old + "\n" * 20).split("\n"))]
    changed = list(lines)
    for place, line in edits:
        changed[place % len(lines)] = line
    hunks = list(find_hunks(lines, changed))
    assert sum(hunk.new_stop - hunk.new_start for hunk in hunks) <= len(edits)
    assert sum(hunk.old_stop - hunk.old_start for hunk in hunks) <= len(edits)


def test_the_form_is_that_of_a_unified_diff_without_context() -> None:
    """Changed, inserted and removed lines, each with its place and number in both texts."""
    old = "one\ntwo\nthree\nfour\nfive\nsix"
    new = "zero\none\ntwo\n3\nfour\nsix"
    assert write_diff(old, new) == "@@ -0,0 +1,1 @@\n+zero\n@@ -3,1 +4,1 @@\n-three\n+3\n@@ -5,1 +5,0 @@\n-five"


def test_the_end_of_the_text_is_exact() -> None:
    """A line feed more or less at the end is a line; so is a carriage return in a line."""
    assert write_diff("a\nb", "a\nb\n") == "@@ -2,0 +3,1 @@\n+"
    assert write_diff("a\nb\n", "a\nb") == "@@ -3,1 +2,0 @@\n-"
    assert write_diff("a\r\nb", "a\nb") == "@@ -1,1 +1,1 @@\n-a\r\n+a"


def _count_diff_steps(number: int) -> int:
    """The steps for reordered, reversed, half changed and repeated lines."""
    lines = [f"line {index}" for index in range(number)]
    mixed = sorted(lines, key=lambda line: line[::-1])
    repeated = ["a", "b"] * (number // 2)
    changed = [line if index % 2 else f"new {line}" for index, line in enumerate(lines)]
    pairs = ((lines, mixed), (lines, lines[::-1]), (lines, changed), (repeated, ["b", *repeated, "c"]))
    return count_steps(lambda: [list(find_hunks(left, right)) for left, right in pairs])


def test_the_work_is_linear_in_the_number_of_lines() -> None:
    """Twice the lines take twice the work in any order. Comparing each line with each would take four times."""
    assert 1.5 < _count_diff_steps(2000) / _count_diff_steps(1000) < 2.5
