"""What to look for in a text: the terms of the call, and the scores for the text's kind, which its lines show.

Law: a table of small functions, one for each kind. A kind is recognised in a sample spread over the whole text. A term
that occurs in more than a few lines carries no information and raises no score.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trimtab.rules.conversation import ToolCall
from trimtab.rules.results.excerpt.scores import (
    is_commits,
    is_listing,
    is_matches,
    is_page,
    is_prose,
    is_source,
    score_commits,
    score_listing,
    score_log,
    score_matches,
    score_prose,
    score_source,
)
from trimtab.rules.results.excerpt.select import Shares
from trimtab.rules.results.excerpt.signals import STARTS, holds_word, read_signal
from trimtab.rules.text.late import compile_late

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
_WORD = compile_late(r"[A-Za-z_\u0080-\U0010ffff][\w.$-]{3,63}")
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


SAMPLE_RUNS, RUN_LINES = 8, 40
"""A sample has 8 runs of 40 neighbouring lines. Chosen: that is all lines of most texts."""
MAX_SIGNALLED_SHARE = 0.04
"""Share of lines with signals (of failures, warnings, totals) that code and prose do not exceed. Chosen."""
_ENDS = Shares(0.06, 0.06)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of text. There is none for JSON, which is recognised by reading it as JSON.

    score: scores lines by their index; lines that it leaves out have no score.
    ends: the shares of the budget for the first and the last lines, whatever they contain.
    """

    score: Callable[[Sequence[str]], dict[int, float]]
    ends: Shares = _ENDS


COMMITS = Kind(score_commits)
MATCHES = Kind(score_matches)
LISTING = Kind(score_listing)
SOURCE = Kind(score_source, Shares(0.12, 0.03))
PROSE = Kind(score_prose, Shares(0.15, 0.05))
LOG = Kind(score_log, Shares(0.06, 0.14))
_TELLS: tuple[tuple[Kind, Callable[[Sequence[str]], bool]], ...] = (
    (COMMITS, is_commits),
    (PROSE, is_page),
    (MATCHES, is_matches),
    (LISTING, is_listing),
    (SOURCE, is_source),
    (PROSE, is_prose),
)


def tell_kind(lines: Sequence[str]) -> Kind:
    """The kind of a text; a log if no other is recognised."""
    sample = _sample(lines)
    kind = next((kind for kind, tells in _TELLS if sample and tells(sample)), LOG)
    return LOG if kind in {SOURCE, PROSE} and _is_signalled(sample) else kind


def _sample(lines: Sequence[str]) -> Sequence[str]:
    if len(lines) <= SAMPLE_RUNS * RUN_LINES:
        return [line for line in lines if line.strip()]
    step = (len(lines) - RUN_LINES) // (SAMPLE_RUNS - 1)
    runs = (lines[start : start + RUN_LINES] for start in range(0, step * SAMPLE_RUNS, step))
    return [line for run in runs for line in run if line.strip()]


def _is_signalled(sample: Sequence[str]) -> bool:
    """Whether so many lines report a failure, a warning or a total that the text is a log after all."""
    heads = [line[:400].partition("\n")[0].rstrip() for line in sample]
    telling = (line for line in heads if not line[:1].isspace() and holds_word(line))
    loud = sum(line.startswith(STARTS) or _is_statement(line) for line in telling)
    return loud > MAX_SIGNALLED_SHARE * len(heads)


def _is_statement(line: str) -> bool:
    signal = read_signal(line)
    return signal.weight >= 9.0 and not line.endswith(("{", ";", "(", ","))
