"""Diffs stay as they are, wherever they stand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.results.tidy.diffs import change_outside_diffs

HEADER = "diff --git a/x.py b/x.py\nindex 1..2 100644\n"
HUNK = "--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,3 @@ def x():\n one  \n-two\r\n+two\n\n three\n"
COLOURED = "\x1b[1m--- a/x.py\x1b[m\n\x1b[1m+++ b/x.py\x1b[m\n\x1b[36m@@ -1 +1 @@\x1b[m\n\x1b[31m-two\x1b[m\r\n"
COMBINED = "@@@ -1,2 -1,2 +1,3 @@@\n- one\n -two\n++three\n\\ No newline at end of file\n"


def change(text: str) -> str:
    return change_outside_diffs(text, lambda piece: "." * len(piece))


@pytest.mark.parametrize("hunk", [HUNK, COLOURED, COMBINED, HUNK * 9000, HUNK + HEADER + HUNK])
def test_only_what_is_no_diff_is_changed(hunk: str) -> None:
    """Behind a commit's header, in the middle of a log, however long."""
    before, behind = "commit 12ab\nAuthor: A\n\n    words\n\n", "$ ls\nx.py\n"
    assert change(before + hunk + behind) == "." * len(before) + hunk + "." * len(behind)


@pytest.mark.parametrize("text", ["what @@ -1 +1 @@ means", "@@ - no numbers", "--- \n+++ \n", "- one\n- two\n"])
def test_other_texts_are_changed_as_a_whole(text: str) -> None:
    assert change(text) == "." * len(text)


@given(
    parts=st.lists(st.sampled_from([HUNK, "@@ -1 +1 @@\n", "@@ -", "\n", "\r", " ", "log line\n", "\x1b[m", "diff "]))
)
def test_nothing_is_lost(parts: list[str]) -> None:
    text = "".join(parts)
    assert change_outside_diffs(text, lambda piece: piece) == text
