"""Changes: diffs, and the log of commits.

Law: a score is a function of the lines.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, repeat

FILE_SCORE, HUNK_SCORE, CHANGE_SCORE, CONTEXT_SCORE = 8.0, 2.5, 4.0, 0.3
FILE_DECAY, HUNK_DECAY, CHANGE_DECAY = 0.35, 0.35, 0.7
"""Exponents of the rank among files, of a hunk within its file, and of a change within its hunk."""
WITHIN_LOG_SHARE = 0.6
"""What a diff within a log matters: the log is what was asked for."""
SUBJECT_SCORE, BODY_SCORE, STAT_SCORE = 6.0, 2.0, 0.5
_FILE = ("diff --git ", "Index: ")
_HEADER = (
    "index ", "new file", "deleted file", "similarity ", "rename ", "copy ", "old mode", "new mode",
    "Binary ", "GIT binary",
)  # fmt: skip
_COMMIT = re.compile(r"commit [0-9a-f]{7,40}\b")
_STAT = re.compile(r" [^\s|][^|]* \| +(?:\d+|Bin)")


def score_diff(texts: Sequence[str]) -> dict[int, float]:
    """Scores of a diff's lines: files, hunks, then changes, the first of each hunk before the rest."""
    return _score_changes(texts, range(len(texts)), 1.0)


def mark_changes(lines: Sequence[str]) -> dict[int, float]:
    """Scores of the lines that belong to diffs within a log."""
    scores: dict[int, float] = {}
    for start in [index for index, line in enumerate(lines) if line.startswith(_FILE[0])]:
        if start in scores:
            continue
        stop = start + 1
        while stop < len(lines) and _is_of_diff(lines[stop]):
            stop += 1
        scores |= _score_changes(lines, range(start, stop), WITHIN_LOG_SHARE)
    return scores


def _is_of_diff(line: str) -> bool:
    return not line or line[0] in " +-@\\" or line.startswith((*_FILE, *_HEADER))


def _score_changes(lines: Sequence[str], places: Iterable[int], share: float) -> dict[int, float]:
    scores = {}
    file_rank, hunk_rank, rank = -1, -1, 0
    for index in places:
        line = lines[index]
        if line.startswith(_FILE):
            file_rank, hunk_rank, rank = file_rank + 1, -1, 0
            score = FILE_SCORE * (1 + file_rank) ** -FILE_DECAY
        elif line.startswith("@@"):
            hunk_rank, rank = hunk_rank + 1, 0
            score = HUNK_SCORE * (1 + hunk_rank) ** -HUNK_DECAY
        elif line[:1] in {"+", "-"} and not line.startswith(("+++ ", "--- ")):
            score = (
                CHANGE_SCORE * (1 + rank) ** -CHANGE_DECAY * (1 + max(hunk_rank, 0)) ** -HUNK_DECAY
                if len(line.strip()) > 1
                else 0.0
            )
            rank += len(line.strip()) > 1
        else:
            score = CONTEXT_SCORE if line.startswith(" ") else 0.0
        if score:
            scores[index] = score * share
    return scores


def score_commits(texts: Sequence[str]) -> dict[int, float]:
    """Scores of a log of commits: what each is about, before its body and what files it touched."""
    scores: dict[int, float] = {}
    waits_for_subject = False
    body: Iterator[float] = repeat(0.0)
    for index, text in enumerate(texts):
        if _COMMIT.match(text):
            waits_for_subject = True
            scores[index] = BODY_SCORE / 2
        elif waits_for_subject and text.startswith("    ") and text.strip():
            waits_for_subject = False
            scores[index] = SUBJECT_SCORE
            body = (BODY_SCORE / rank for rank in count(1))
        elif text.startswith("    ") and text.strip():
            scores[index] = next(body)
        elif _STAT.match(text):
            scores[index] = STAT_SCORE
    return scores


def begins_file(line: str) -> bool:
    """Whether a line of a diff says which file follows."""
    return line.startswith(_FILE)


def is_diff(lines: Sequence[str]) -> bool:
    """Whether a sample of lines is a diff, and nothing else."""
    files = sum(line.startswith((*_FILE, "@@ ", "--- ", "+++ ")) for line in lines)
    return files >= 3 and sum(map(_is_of_diff, (line.rstrip("\n") for line in lines))) >= 0.95 * len(lines)


def is_commits(lines: Sequence[str]) -> bool:
    """Whether a sample of lines is a log of commits without their changes."""
    return sum(_COMMIT.match(line) is not None for line in lines) >= 3 and not any(
        line.startswith(_FILE) for line in lines
    )
