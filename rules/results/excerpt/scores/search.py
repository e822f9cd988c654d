"""Scores of search results and listings: the first lines of every file or folder score higher than its later lines.

Law: a score is a function of the lines.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

# Chosen: matches before their context, headings of folders before entries.
MATCH_SCORE, CONTEXT_SCORE, HEADING_SCORE, ENTRY_SCORE = 4.0, 1.0, 5.0, 2.0
FILE_DECAY = 0.5  # exponent of a line's rank in its file or folder; chosen
_GREP = re.compile(
    r"(?P<file>(?!\d+[-/:.]\d)(?:[A-Za-z]:)?(?=[^\s:]*[A-Za-z])[^\s:]+?(?=[:-]\d+[:-]))?(?(file)[:-])(?P<line>(?!0\d)\d+)(?P<sign>[:-])"
)
_VERDICT = re.compile(r"(?:\d+:)?\s*(?:(?:fatal )?error|warning|note|info|[EWFCRN]\d{3,4})\b\s*[:\[(]?(?! ?=)")
"""The text that a compiler or a linter writes after a position in a file. A search result has code there."""
_LONG_LISTING = re.compile(r"[-dlbcps][rwxsStT-]{9}[.+@]?\s")
_FOLDER = re.compile(r"\S.*:$")
_PATH = re.compile(r"(?:\./|/|[\w.@+-]+/)[^\s:]*$")


def score_matches(texts: Sequence[str]) -> dict[int, float]:
    """Scores of the lines of grep and similar tools: matches before context, the first matches of each file first."""
    scores: dict[int, float] = {}
    seen: Counter[str] = Counter()
    for index, text in enumerate(texts):
        found = _GREP.match(text[:400])
        if found is None:
            continue
        file = found["file"] or ""
        if found["sign"] == ":":
            scores[index] = MATCH_SCORE * (1 + seen[file]) ** -FILE_DECAY
            seen[file] += 1
        elif text[found.end() : found.end() + 200].strip():
            scores[index] = CONTEXT_SCORE
    return scores


def score_listing(texts: Sequence[str]) -> dict[int, float]:
    """Scores of a listing's lines: headings of folders, then the first entries of each folder."""
    scores: dict[int, float] = {}
    seen: Counter[str] = Counter()
    folder = ""
    for index, text in enumerate(texts):
        line = text.rstrip()
        if _FOLDER.match(line) and "/" in line:
            folder = line
            scores[index] = HEADING_SCORE
        elif line:
            place = folder or line.rpartition("/")[0]
            scores[index] = ENTRY_SCORE * (1 + seen[place]) ** -FILE_DECAY
            seen[place] += 1
    return scores


def is_matches(lines: Sequence[str]) -> bool:
    """Whether a sample of lines is the output of a search.

    Its lines begin with a file and a line number, or with a number alone. If messages of a compiler or a linter follow,
    it is not a search.
    """
    found = [match for line in lines if (match := _GREP.match(line[:400]))]
    if len(found) < 0.6 * len(lines) or not any(match["sign"] == ":" for match in found):
        return False
    named = sum(match["file"] is not None for match in found)
    if named < 0.9 * len(found):
        # Without files: a search in one file has rising numbers with gaps; `cat -n` has no gaps.
        steps = [int(after["line"]) - int(before["line"]) for before, after in pairwise(found)]
        return not named and sum(step > 0 for step in steps) >= 0.9 * len(steps) and any(step != 1 for step in steps)
    return not any(_VERDICT.match(match.string, match.end()) for match in found)


def is_listing(lines: Sequence[str]) -> bool:
    """Whether a sample of lines lists files."""
    listed = sum(_LONG_LISTING.match(line) is not None or _PATH.match(line.rstrip()) is not None for line in lines)
    return listed >= 0.8 * len(lines)
