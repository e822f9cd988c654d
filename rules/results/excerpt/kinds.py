"""What kind of text a tool result is, told from its lines, and what its lines matter.

Law: a table of small functions, one for each kind. A kind is told from a sample spread over the whole text.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

from rules.results.excerpt.scores.diffs import is_commits, score_commits
from rules.results.excerpt.scores.log import score_log
from rules.results.excerpt.scores.prose import is_page, is_prose, score_prose
from rules.results.excerpt.scores.search import is_listing, is_matches, score_listing, score_matches
from rules.results.excerpt.scores.signals import STARTS, holds_word, read_signal
from rules.results.excerpt.scores.source import is_source, score_source
from rules.results.excerpt.select import Shares

Score = Callable[[Sequence[str]], dict[int, float]]

SAMPLE_RUNS, RUN_LINES = 8, 40
"""A sample has so many runs of so many neighbouring lines: all lines of most texts."""
MAX_SIGNALLED_SHARE = 0.04
"""Code and prose have fewer lines with signals of how something went."""


class Kind(StrEnum):
    """Kinds of text, but for JSON, which is told by being JSON."""

    COMMITS = "commits"
    MATCHES = "matches"
    LISTING = "listing"
    SOURCE = "source"
    PROSE = "prose"
    LOG = "log"


_TELLS: tuple[tuple[Kind, Callable[[Sequence[str]], bool]], ...] = (
    (Kind.COMMITS, is_commits),
    (Kind.PROSE, is_page),
    (Kind.MATCHES, is_matches),
    (Kind.LISTING, is_listing),
    (Kind.SOURCE, is_source),
    (Kind.PROSE, is_prose),
)
SCORES: dict[Kind, Score] = {
    Kind.COMMITS: score_commits,
    Kind.MATCHES: score_matches,
    Kind.LISTING: score_listing,
    Kind.SOURCE: score_source,
    Kind.PROSE: score_prose,
    Kind.LOG: score_log,
}
_ENDS = {
    Kind.LOG: Shares(0.06, 0.14),
    Kind.SOURCE: Shares(0.12, 0.03),
    Kind.PROSE: Shares(0.15, 0.05),
}
_OTHER_ENDS = Shares(0.06, 0.06)


def tell_kind(lines: Sequence[str]) -> Kind:
    """The kind of a text; a log where none is told."""
    sample = _sample(lines)
    if not sample:
        return Kind.LOG
    for kind, tells in _TELLS:
        if tells(sample):
            is_quiet = kind not in {Kind.SOURCE, Kind.PROSE} or not _is_signalled(sample)
            return kind if is_quiet else Kind.LOG
    return Kind.LOG


def ends_of(kind: Kind) -> Shares:
    """What the first and the last lines of a text of this kind get."""
    return _ENDS.get(kind, _OTHER_ENDS)


def _sample(lines: Sequence[str]) -> Sequence[str]:
    if len(lines) <= SAMPLE_RUNS * RUN_LINES:
        return [line for line in lines if line.strip()]
    step = (len(lines) - RUN_LINES) // (SAMPLE_RUNS - 1)
    runs = (lines[start : start + RUN_LINES] for start in range(0, step * SAMPLE_RUNS, step))
    return [line for run in runs for line in run if line.strip()]


def _is_signalled(sample: Sequence[str]) -> bool:
    """Whether it is a log after all: lines that begin as logs' do, and tell how something went."""
    heads = [line[:400].partition("\n")[0].rstrip() for line in sample]
    telling = (line for line in heads if not line[:1].isspace() and holds_word(line))
    loud = sum(line.startswith(STARTS) or _is_statement(line) for line in telling)
    return loud > MAX_SIGNALLED_SHARE * len(heads)


def _is_statement(line: str) -> bool:
    signal = read_signal(line)
    return signal.weight >= 9.0 and not line.endswith(("{", ";", "(", ","))
