"""Diffs and logs of commits."""

from rules.results.excerpt.scores.diffs import is_commits, is_diff, mark_changes, score_commits, score_diff

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


def test_files_and_changes_come_before_what_stands_around_them() -> None:
    """The first change of a hunk before those behind it; the hunk's header is kept with them."""
    scores = score_diff(DIFF)
    assert scores[0] > scores[6] > scores[7] > scores[20] > scores[5]
    assert scores[4] > scores[20]
    assert 1 not in scores


def test_every_hunk_begins_anew() -> None:
    """The first change of a later hunk matters more than the later ones of the first."""
    scores = score_diff([*DIFF, "@@ -99 +99 @@", "-a line", "+another"])
    assert scores[len(DIFF) + 1] > scores[9]


def test_a_diff_within_a_log_is_marked() -> None:
    """From its file on to the first line that belongs to no diff, and with less weight."""
    lines = ["applying the patch", *DIFF, "done with it"]
    marked = mark_changes(lines)
    assert set(marked) <= set(range(1, len(DIFF) + 1))
    assert 0 < marked[1] < score_diff(DIFF)[0]
    assert mark_changes(["no diff"]) == {}


def test_subjects_come_before_bodies() -> None:
    """And those before the names of files."""
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
    assert scores[3] > scores[5] > scores[6] > 0
    assert 1 not in scores
    assert is_commits(lines * 3)
    assert not is_commits([*lines * 3, *DIFF])


def test_a_list_is_no_diff() -> None:
    """Lines that begin with dashes are not enough, nor is a diff among other lines."""
    assert is_diff(DIFF)
    assert not is_diff([f"- item {number}" for number in range(50)])
    assert not is_diff([*DIFF, *["words of a log"] * 9])
