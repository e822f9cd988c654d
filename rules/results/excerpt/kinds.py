"""The kind of a text, recognised by its lines, and how the lines of each kind are scored.

Law: a table of small functions, one for each kind. A kind is recognised in a sample spread over the whole text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rules.results.excerpt.scores.diffs import is_commits, score_commits
from rules.results.excerpt.scores.log import score_log
from rules.results.excerpt.scores.prose import is_page, is_prose, score_prose
from rules.results.excerpt.scores.search import is_listing, is_matches, score_listing, score_matches
from rules.results.excerpt.scores.signals import STARTS, holds_word, read_signal
from rules.results.excerpt.scores.source import is_source, score_source
from rules.results.excerpt.select import Shares

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
