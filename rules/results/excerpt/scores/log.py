"""Scores of logs (of tests, builds, linters and servers), and of any text of no other kind.

Law: a score is a function of the lines. Lines with a signal and lines of a rare shape have a score. Lines next to a
strong signal have a share of its score. Frames of tracebacks and lines of diffs have scores of their own. Other lines
have no score.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile

from rules.results.excerpt.scores.diffs import mark_changes
from rules.results.excerpt.scores.shapes import find_rare
from rules.results.excerpt.scores.signals import ALL_STEMS, MAX_CHARS, NO_SIGNAL, WARNING, Signal, read_signal

FAMILY_DECAY = 0.6
"""A signal's score is divided by its rank in its family to this power. Chosen: the second line of a family says less
than the first."""
NEIGHBOURS = ((1, 0.45), (-1, 0.27))
"""Lines around a strong signal: distance, and share of its score. Chosen: the line after it gets more than the one
before."""
FRAMES_LOOKED_AT = 400  # lines after the start of a traceback; chosen: longer than usual tracebacks
_TRACEBACK = "Traceback (most recent call last)"
RARE_SCORE = 3.0
"""Score of a line with a unique shape in a text whose other lines all have one shape. Chosen."""


def score_log(texts: Sequence[str]) -> dict[int, float]:
    """Scores of a log's units, by their index."""
    cut = {text: text[:MAX_CHARS].partition("\n")[0].rstrip() for text in dict.fromkeys(texts)}
    lines = list(map(cut.__getitem__, texts))
    changes = mark_changes(lines)
    signals = {index: signal for index, signal in _read_signals(lines).items() if index not in changes}
    scores = _score_signals(signals)
    rare, told = find_rare(lines)
    for index in rare:
        if lines[index].strip():
            scores[index] = scores.get(index, 0.0) + RARE_SCORE * told
    _add_neighbours(scores, lines, signals)
    _add_frames(scores, lines)
    return scores | changes


def _read_signals(lines: Sequence[str]) -> dict[int, Signal]:
    """The signals of lines that have any, by index; equal lines are read once."""
    different = dict.fromkeys(lines)
    stems = ALL_STEMS.find("\n".join(different))
    read = ((line, read_signal(line, stems)) for line in different)
    signals = {line: signal for line, signal in read if signal is not NO_SIGNAL}
    return {index: signals[line] for index, line in enumerate(lines) if line in signals} if signals else {}


def _score_signals(signals: Mapping[int, Signal]) -> dict[int, float]:
    """Scores by index. In each family of signals, the first line matters most, then the second and the last one."""
    totals = Counter(signal.family for signal in signals.values())
    seen: Counter[object] = Counter()
    scores = {}
    for index, signal in signals.items():
        rank = seen[signal.family]
        seen[signal.family] += 1
        nearest = min(rank, 2 * (totals[signal.family] - 1 - rank) + 1)
        scores[index] = signal.weight * float((1 + nearest) ** -FAMILY_DECAY)
    return scores


def _add_neighbours(scores: dict[int, float], lines: Sequence[str], signals: Mapping[int, Signal]) -> None:
    """Add scores for the lines next to a strong signal, except if they have a strong signal themselves."""
    strong = {index for index, signal in signals.items() if signal.weight >= WARNING}
    for index, score in [(index, scores[index]) for index in signals if index in strong]:
        for distance, share in NEIGHBOURS:
            at = index + distance
            line = lines[at].strip() if 0 <= at < len(lines) and at not in strong else ""
            if line:
                scores[at] = max(scores.get(at, 0.0), score * share * min(1.0, (len(line) + 8) / 20))


def _add_frames(scores: dict[int, float], lines: Sequence[str]) -> None:
    """Add scores for the frames of Python tracebacks: shares of the exception's score, most for the innermost frame."""
    opening = {line for line in dict.fromkeys(lines) if _TRACEBACK in line}
    for start in [index for index, line in enumerate(lines) if line in opening] if opening else ():
        stop = start + 1 + sum(1 for _ in takewhile(_is_frame, lines[start + 1 : start + 1 + FRAMES_LOOKED_AT]))
        if stop >= len(lines):
            continue
        score = max(scores.get(stop, 0.0), 1.0)
        scores[start] = max(scores.get(start, 0.0), score / 2)
        for distance in range(1, stop - start):
            share = 0.85 if distance <= 2 else 0.5 if distance <= 6 else 0.3 / (1 + distance / 8)
            scores[stop - distance] = score * share


def _is_frame(line: str) -> bool:
    return line[:1] in {" ", "\t"} and _TRACEBACK not in line
