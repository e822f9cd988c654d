"""Scores of changes: diffs, and logs of commits.

Law: a score is a function of the lines.
"""

import re
from collections.abc import Sequence

# Chosen: a line that names a file before the changed lines, and these before the headers of hunks.
FILE_SCORE, HUNK_SCORE, CHANGE_SCORE, SUBJECT_SCORE, COMMIT_SCORE = 4.8, 1.5, 2.4, 6.0, 1.0
_FILE = ("diff --git ", "Index: ")
_HEADER = (
    "index ", "new file", "deleted file", "similarity ", "rename ", "copy ", "old mode", "new mode",
    "Binary ", "GIT binary",
)  # fmt: skip
_COMMIT = re.compile(r"commit [0-9a-f]{7,40}\b")


def mark_changes(lines: Sequence[str]) -> dict[int, float]:
    """Scores of the lines that belong to diffs: files matter most, then changed lines, then headers of hunks.

    All lines of a diff are in the result, those that do not matter with 0.
    """
    scores: dict[int, float] = {}
    for start in [index for index, line in enumerate(lines) if line.startswith(_FILE[0])]:
        if start in scores:
            continue
        stop = start + 1
        while stop < len(lines) and _is_of_diff(lines[stop]):
            stop += 1
        for index in range(start, stop):
            scores[index] = _score_change(lines[index])
    return scores


def _is_of_diff(line: str) -> bool:
    return not line or line[0] in " +-@\\" or line.startswith((*_FILE, *_HEADER))


def _score_change(line: str) -> float:
    if line.startswith(_FILE):
        return FILE_SCORE
    if line.startswith("@@"):
        return HUNK_SCORE
    is_change = line[:1] in {"+", "-"} and not line.startswith(("+++ ", "--- "))
    return CHANGE_SCORE if is_change and len(line.strip()) > 1 else 0.0


def score_commits(texts: Sequence[str]) -> dict[int, float]:
    """Scores of the lines in a log of commits: the subject of each commit matters most."""
    scores: dict[int, float] = {}
    waits_for_subject = False
    for index, text in enumerate(texts):
        if _COMMIT.match(text):
            waits_for_subject = True
            scores[index] = COMMIT_SCORE
        elif waits_for_subject and text.startswith("    ") and text.strip():
            waits_for_subject = False
            scores[index] = SUBJECT_SCORE
    return scores


def is_commits(lines: Sequence[str]) -> bool:
    """Whether a sample of lines is a log of commits without their changes."""
    return sum(_COMMIT.match(line) is not None for line in lines) >= 3 and not any(
        line.startswith(_FILE) for line in lines
    )
