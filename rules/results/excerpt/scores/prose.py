"""Scores of documents and HTML pages: headings, and the beginning of each paragraph.

Law: a score is a function of the lines.
"""

import re
from collections import Counter
from collections.abc import Sequence

# Chosen: headings, then first lines of paragraphs, then other lines, then lines of tags only.
HEADING_SCORE, OPENING_SCORE, LINE_SCORE, TAG_SCORE = 6.0, 3.0, 1.0, 0.2
MAX_OPENING_SHARE = 0.2
"""Share of a document's lines that may begin with the same word. Chosen: in logs, more lines do."""
_HEADING = re.compile(r"#{1,6} \S|[A-Z][A-Z0-9 ,'()/-]{3,60}$|\s*<(?:h[1-6]|title|th|caption)\b", re.ASCII)
_UNDERLINE = re.compile(r"(?:=+|-+|~+|\^+)\s*$")
_PAGE = re.compile(r"\s*(?:<!doctype html|<html|<\?xml|<head|<body)", re.IGNORECASE)
_TAGS_ONLY = re.compile(r"\s*(?:</?[a-zA-Z][^>]*>\s*)+$")
_IN_PAGE = re.compile(r"(?i)\s*</?(?:script|style|svg|path|link|meta)\b")


def score_prose(texts: Sequence[str]) -> dict[int, float]:
    """Scores of the lines of a document or an HTML page."""
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
    """Whether a sample of lines begins like an HTML page."""
    return any(_PAGE.match(line[:200]) for line in lines[:5])


def is_prose(lines: Sequence[str]) -> bool:
    """Whether a sample of lines is a document: it has headings, or mostly lines of many words and few signs."""
    filled = [line.strip() for line in lines if line.strip()]
    openings = Counter(line.split()[0] for line in filled if line[0].isalnum())
    if openings and openings.most_common(1)[0][1] > MAX_OPENING_SHARE * len(filled):
        return False
    wordy = sum(len(line.split()) >= 6 and sum(map(str.isalpha, line)) >= 0.7 * len(line) for line in filled)
    headed = sum(_HEADING.match(line) is not None for line in filled)
    return wordy >= 0.55 * len(filled) or (headed >= 3 and wordy >= 0.35 * len(filled))
