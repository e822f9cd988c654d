"""Diffs and logs of commits."""

from trimtab.rules.results.excerpt.scores import is_commits, mark_changes, score_commits

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
    """A diff goes from the line with its file to the first line that is not part of a diff."""
    lines = ["applying the patch", *DIFF, "done with it"]
    scores = mark_changes(lines)
    assert set(scores) == set(range(1, len(DIFF) + 1))
    assert scores[1] > scores[7] == scores[20] > scores[5] > scores[6] == scores[2] == 0
    assert mark_changes(["no diff"]) == {}


def test_a_change_of_nothing_is_none() -> None:
    """An empty line that is added or removed does not matter; one of a single sign does."""
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
