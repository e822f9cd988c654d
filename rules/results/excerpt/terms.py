"""Finds the terms in the arguments of a call, and the lines of its result that contain them.

Law: a term that occurs in more than a few lines carries no information and raises no score.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence

from rules.conversation import ToolCall

TERM_SCORE = 9.0  # chosen: between the scores of loud lines and of errors (scores/signals.py)
NEAR_LINES, NEAR_SHARE = range(-1, 9), 0.75
"""Positions of lines around a line with a term, relative to it, and their share of its score. Most of them are after
it, because the body of a definition follows its name."""
# A term may be in this share of the lines, or in 6 lines if that is more. Chosen: in more, it selects nothing.
MAX_LINES_SHARE = 0.05
MIN_MAX_LINES = 6
# Chosen: each term costs a search of the whole text, and short words are in too many lines.
MAX_TERMS = 24
MIN_TERM_CHARS = 4
MAX_ARGUMENT_CHARS = 4000  # part of the arguments that is read; chosen: longer ones carry files
_WORD = re.compile(r"[A-Za-z_\u0080-\U0010ffff][\w.$-]{3,63}")
_COMMON = frozenset(
    {
        "command", "content", "path", "file", "files", "pattern", "query", "include", "exclude", "head", "tail", "grep",
        "find", "echo", "true", "false", "null", "python", "python3", "timeout", "bash", "view_range", "line", "lines",
        "start", "stop", "limit", "offset", "count", "name", "type", "recursive", "regex", "directory", "string",
        "text",
    }
)  # fmt: skip


def find_terms(call: ToolCall | None) -> tuple[str, ...]:
    """Words of the call's arguments that the result may contain, in their order: identifiers, names, other words."""
    if call is None:
        return ()
    words = dict.fromkeys(_WORD.findall(call.arguments[:MAX_ARGUMENT_CHARS].replace("\\n", " ").replace("\\", " ")))
    bare = dict.fromkeys(word.strip(".-") for word in words)
    return tuple(word for word in bare if len(word) >= MIN_TERM_CHARS and word.lower() not in _COMMON)[:MAX_TERMS]


def add_terms(scores: dict[int, float], text: str, offsets: Sequence[int], terms: Sequence[str]) -> None:
    """Raise the scores of units that contain a term, and of those around them. A higher score stays.

    offsets: the position in `text` at which each unit begins; then the length of the text.
    """
    units = len(offsets) - 1
    most = max(MIN_MAX_LINES, int(units * MAX_LINES_SHARE))
    for term in terms:
        found = _find_units(text, offsets, term, most + 1)
        if len(found) > most:
            continue
        for rank, index in enumerate(found):
            for distance in NEAR_LINES:
                if 0 <= index + distance < units:
                    score = TERM_SCORE * (NEAR_SHARE if distance else 1.0) * (1 + rank) ** -0.3
                    scores[index + distance] = max(scores.get(index + distance, 0.0), score)


def _find_units(text: str, offsets: Sequence[int], term: str, most: int) -> list[int]:
    """The first `most` units that contain the term, or its beginning."""
    found: list[int] = []
    at = text.find(term)
    while at >= 0 and len(found) < most:
        found.append(bisect_right(offsets, at) - 1)
        at = text.find(term, offsets[found[-1] + 1])
    return found
