"""Logs of tests, builds, linters and servers, and any text of no other kind: how much each line matters.

Law: a score is a function of the lines. Lines with signals, and those of rare shape, have one; those around a strong
one have a share of its; all others have none.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from rules.results.excerpt.lines import batch_lines
from rules.results.excerpt.scores.diffs import mark_changes
from rules.results.excerpt.scores.shapes import Shape, Shapes, read_shapes
from rules.results.excerpt.scores.signals import (
    HTTP_MARK,
    MAX_CHARS,
    NO_SIGNAL,
    QUIET_FACTOR,
    STARTS,
    WARNING,
    Signal,
    find_marked,
    read_signal,
    read_status,
)

RARITY_WEIGHT = 5.0
RARITY_SHARE = 0.5
"""Of a signal's weight, given to rare shapes only."""
PLAIN_SCORE = 0.3
MAX_MEMBERS = 60
"""Lines of one shape that have a score of their own."""
FULL_LINE_CHARS = 40
"""A shorter line says less by being rare."""
FAMILY_DECAY, SHAPE_DECAY = 0.6, 0.4
"""The second line of a kind says less than the first; the exponent of its rank."""
REPEATED_FACTOR = 0.15
"""Of a line that has stood there before, letter by letter."""
NEIGHBOURS = ((1, 1.0), (2, 0.8), (3, 0.7), (4, 0.5), (5, 0.4), (-1, 0.6), (-2, 0.4))
"""Lines around a strong signal, and their share."""
NEIGHBOUR_SHARE = 0.45
HEADING_SHARE = 0.8
"""Of the line before a signal that ends with a colon: it says where that happened."""
MIN_STRONG = 2.0
FRAMES_LOOKED_AT = 400
_PREFIX = re.compile(
    r"(?:\[[^\]\n]{1,40}\]\s+|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\s+|"
    r"[A-Z][a-z]{2}\s+\d+ \d\d:\d\d:\d\d\s+|\d\d:\d\d:\d\d[.,\d]*\s+)+"
)
_SAMPLED = 400
_BELONGS = re.compile(r"\s|[|=^~+>*-]|\d+ +\|")
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(slots=True)
class _Ranks:
    """How many lines of a kind there are, and how many have been seen."""

    totals: Mapping[Any, int]
    seen: Counter[object]

    def decay(self, kind: object, exponent: float) -> float:
        """What is left of a line's weight: the first lines of a kind matter most, the last ones next."""
        rank = self.seen[kind]
        self.seen[kind] += 1
        return float((1 + min(rank, 2 * (self.totals[kind] - 1 - rank) + 1)) ** -exponent)


def score_log(texts: Sequence[str]) -> dict[int, float]:
    """Scores by the number of a unit."""
    lines = _strip_prefixes([text[:MAX_CHARS].partition("\n")[0].rstrip() for text in texts])
    shapes = read_shapes(lines)
    changes = mark_changes(lines)
    signals = {index: signal for index, signal in _read_signals(lines, shapes).items() if index not in changes}
    weights = _quiet_followers(lines, signals)
    scores = _score_signals(lines, shapes, signals, weights)
    _add_rare(scores, lines, shapes, changes)
    strong = {
        index: score for index, score in scores.items() if weights.get(index, 0) >= WARNING and score > MIN_STRONG
    }
    _add_neighbours(scores, lines, strong, weights)
    _add_frames(scores, lines)
    scores |= changes
    return scores


def _strip_prefixes(lines: list[str]) -> list[str]:
    """Without the time or the job that most lines begin with."""
    sample = [line for line in lines[:: max(1, len(lines) // _SAMPLED)] if line]
    if 2 * sum(_PREFIX.match(line) is not None for line in sample) <= len(sample):
        return lines
    return [line[found.end() :] if (found := _PREFIX.match(line)) else line for line in lines]


def _read_signals(lines: Sequence[str], shapes: Shapes) -> dict[int, Signal]:
    """The signals of lines that have any; lines of one shape with the same keywords speak alike."""
    known: dict[tuple[Shape, int, str], Signal] = {}
    signals: dict[str, Signal] = {}
    different = list(shapes.by_line)
    for start, stop in batch_lines(different):
        marked = find_marked(different[start:stop])
        for offset, line in enumerate(different[start:stop]):
            if offset not in marked and not line.startswith(STARTS):
                continue
            marks = marked.get(offset, 0)
            key = (shapes.by_line[line], marks, read_status(line) if marks & HTTP_MARK else "")
            signal = known.get(key)
            if signal is None:
                signal = known[key] = read_signal(line, marks)
            if signal is not NO_SIGNAL:
                signals[line] = signal
    return {index: signals[line] for index, line in enumerate(lines) if line in signals}


def _quiet_followers(lines: Sequence[str], signals: Mapping[int, Signal]) -> dict[int, float]:
    """Weights of the signals, lower for the lines that belong to a strong one before them."""
    weights = {}
    leader, leader_indent, last = -1, 0, -1
    for index, signal in signals.items():
        line, weight = lines[index], signal.weight
        if leader >= 0 and not all(map(str.strip, lines[last + 1 : min(index, last + 12)])):
            leader = -1
        indent = len(line) - len(line.lstrip())
        follows = _BELONGS.match(line) and signal.family[:1] not in {("explains",), ("points",), ("banner",)}
        if leader >= 0 and follows and (indent > leader_indent or line[:1] in "|=^~>"):
            weight *= QUIET_FACTOR
        elif weight >= WARNING:
            leader, leader_indent = index, indent
        weights[index] = weight
        last = index
    return weights


def _score_signals(
    lines: Sequence[str], shapes: Shapes, signals: Mapping[int, Signal], weights: Mapping[int, float]
) -> dict[int, float]:
    families = _Ranks(Counter(signal.family for signal in signals.values()), Counter())
    kinds = _Ranks(shapes.counts, Counter())
    repeated: Counter[str] = Counter()
    scores = {}
    for index, signal in signals.items():
        score = weights[index] * (1 - RARITY_SHARE + RARITY_SHARE * shapes.rarity(index))
        score *= families.decay(signal.family, FAMILY_DECAY) * kinds.decay(shapes.of[index], SHAPE_DECAY)
        earlier = repeated[lines[index]]
        repeated[lines[index]] += 1
        scores[index] = score * REPEATED_FACTOR / earlier if earlier else score
    return scores


def _add_rare(scores: dict[int, float], lines: Sequence[str], shapes: Shapes, passed: Mapping[int, float]) -> None:
    """The lines of each shape by how rare that is, the first ones before the last ones."""
    templates = RARITY_WEIGHT * (1 - shapes.variety)
    worth = {shape: templates * shapes.rarity_of(shape) + PLAIN_SCORE for shape in shapes.counts}
    seen: dict[Shape, int] = {}
    for index, shape in enumerate(shapes.of):
        rank = seen[shape] = seen.get(shape, -1) + 1
        if MAX_MEMBERS <= rank < shapes.counts[shape] - MAX_MEMBERS // 2:
            continue
        if index in passed or not lines[index].strip():
            continue
        rank = min(rank, 2 * (shapes.counts[shape] - 1 - rank) + 1)
        telling = min(1.0, len(lines[index]) / FULL_LINE_CHARS)
        scores[index] = scores.get(index, 0.0) + worth[shape] * telling * (1 + rank) ** -SHAPE_DECAY


def _add_neighbours(
    scores: dict[int, float], lines: Sequence[str], strong: Mapping[int, float], weights: Mapping[int, float]
) -> None:
    for index, score in strong.items():
        for distance, share in NEIGHBOURS:
            at = index + distance
            if not 0 <= at < len(lines) or weights.get(at, 0) >= WARNING:
                continue
            line = lines[at].strip()
            if line:
                heads = distance < 0 and line.endswith(":")
                given = score * (HEADING_SHARE if heads else share * NEIGHBOUR_SHARE)
                scores[at] = max(scores.get(at, 0.0), given * min(1.0, (len(line) + 8) / 20))


def _add_frames(scores: dict[int, float], lines: Sequence[str]) -> None:
    """The frames of Python's tracebacks, the innermost first, by what the exception matters."""
    for start in [index for index, line in enumerate(lines) if _TRACEBACK in line]:
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
