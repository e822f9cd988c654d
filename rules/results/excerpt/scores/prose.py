"""Documents and pages: headings, and how each paragraph begins.

Law: a score is a function of the lines.
"""

import re
from collections import Counter
from collections.abc import Sequence

HEADING_SCORE, OPENING_SCORE, LINE_SCORE, TAG_SCORE = 6.0, 3.0, 1.0, 0.2
MAX_OPENING_SHARE = 0.2
"""Of a document's lines that begin with the same word; logs have more."""
_HEADING = re.compile(r"#{1,6} \S|[A-Z][A-Z0-9 ,'()/-]{3,60}$|\s*<(?:h[1-6]|title|th|caption)\b", re.ASCII)
_UNDERLINE = re.compile(r"(?:=+|-+|~+|\^+)\s*$")
_PAGE = re.compile(r"\s*(?:<!doctype html|<html|<\?xml|<head|<body)", re.IGNORECASE)
_TAGS_ONLY = re.compile(r"\s*(?:</?[a-zA-Z][^>]*>\s*)+$")
_IN_PAGE = re.compile(r"(?i)\s*</?(?:script|style|svg|path|link|meta)\b")


def score_prose(texts: Sequence[str]) -> dict[int, float]:
    """Scores of a document's lines, of an HTML page's too."""
    scores: dict[int, float] = {}
    for index, text in enumerate(texts):
        line = text[:400].rstrip()
        if not line.strip():
            continue
        underlined = index + 1 < len(texts) and len(line) >= 3 and _UNDERLINE.match(texts[index + 1][:400])
        if _HEADING.match(line) or underlined:
            scores[index] = HEADING_SCORE
        elif _TAGS_ONLY.match(line) or _IN_PAGE.match(line):
            scores[index] = TAG_SCORE
        else:
            begins = index == 0 or not texts[index - 1].strip()
            scores[index] = OPENING_SCORE if begins else LINE_SCORE
    return scores


def is_page(lines: Sequence[str]) -> bool:
    """Whether a sample of lines begins as an HTML page does."""
    return any(_PAGE.match(line[:200]) for line in lines[:5])


def is_prose(lines: Sequence[str]) -> bool:
    """Whether a sample of lines is a document: headings, and lines of many words without the signs of code or logs."""
    filled = [line.strip() for line in lines if line.strip()]
    openings = Counter(line.split()[0] for line in filled if line[0].isalnum())
    if openings and openings.most_common(1)[0][1] > MAX_OPENING_SHARE * len(filled):
        return False
    wordy = sum(len(line.split()) >= 6 and sum(map(str.isalpha, line)) >= 0.7 * len(line) for line in filled)
    headed = sum(_HEADING.match(line) is not None for line in filled)
    return wordy >= 0.55 * len(filled) or (headed >= 3 and wordy >= 0.35 * len(filled))
