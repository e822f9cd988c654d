"""Head and tail of a text around a marker: what a long text keeps where nobody looks into it.

Law: never longer than the limit, exact by the measure given. The marker says how much is missing.
"""

from collections.abc import Callable

from rules.text.graphemes import LOOK_BEHIND_CHARS, ceil_boundary, floor_boundary
from rules.text.markers import mark_middle

HEAD_SHARE = 0.4
"""Of the budget. Errors and totals stand at the end of logs, so the tail gets the larger part."""
LINE_SLACK = 0.2
"""A cut moves to a line's end when that costs at most this share of the piece."""
SEARCH_ROUNDS = 12
"""Pieces measured for one cut at most; most cuts need two or three."""
PROPORTIONAL_ROUNDS = 4
CLOSE_ENOUGH = 0.97
LIKELY_CHARS_PER_UNIT = 4
LONGEST_CLUSTER = 64
"""Code points that one character of a reader may have; a longer run of marks is cut anywhere."""
MAX_CHARS_PER_UNIT = 128
"""No token of the vocabulary is longer."""
ENCODED_AT_ONCE = 256 * 1024
"""Characters. Encoding a text of megabytes in one call would hold the interpreter."""
MIN_TEXT_TOKENS = 24
"""A text shorter than this says nothing: a summary's reserve below it has room for one line only."""

Measure = Callable[[str], int]
"""Size of a text in whatever unit a limit is given in: tokens, bytes."""


def truncate_text(
    text: str, limit: int, measure: Measure, unit: str = "tokens", count_units: Measure | None = None, how: str = ""
) -> str:
    """Head and tail of `text` around a marker, together at most `limit` by `measure`.

    The marker names how many lines lack something, and how much is missing in `unit`, as `count_units` counts it
    (by default `measure` does), and `how` to see it. The same text if it fits. If not even the marker fits, as much of
    the head as does.
    """
    if measure(text) <= limit:
        return text
    count_units = count_units or measure
    total = count_units(text)
    room = limit - measure(_mark(_count_lines(text, 0, len(text)), total, unit, how))
    for _ in range(SEARCH_ROUNDS):
        if room * HEAD_SHARE < 1:  # a marker without a beginning before it tells less than a beginning alone
            break
        head = _take(text, int(room * HEAD_SHARE), measure)
        tail = _take(text, room - int(room * HEAD_SHARE), measure, behind=len(head))
        missing = total - count_units(head) - count_units(tail)
        lines = _count_lines(text, len(head), len(text) - len(tail))
        kept = head + _mark(lines, missing, unit, how) + tail
        excess = measure(kept) - limit
        if excess <= 0:
            return kept
        room -= excess
    return take_head(text, limit, measure)


def take_head(text: str, limit: int, measure: Measure) -> str:
    """As much of the beginning as measures at most `limit`, without a marker; never nothing where a character fits."""
    return _take(text, limit, measure) or _take_points(text, limit, measure)


def _take_points(text: str, limit: int, measure: Measure) -> str:
    """As much as fits of a first character that does not."""
    return next((text[:size] for size in range(LONGEST_CLUSTER, 0, -1) if measure(text[:size]) <= limit), "")


def _count_lines(text: str, start: int, stop: int) -> int:
    """Lines of which something stands in text[start:stop]; a line break alone is nothing of the line that it ends."""
    first = start + (start > 0 and text.startswith("\n", start))
    return text.count("\n", first, stop - text.endswith("\n", first, stop)) + 1


def _mark(lines: int, size: int, unit: str, how: str) -> str:
    return f"\n{mark_middle(lines, size, unit, how)}\n"


def _take(text: str, limit: int, measure: Measure, *, behind: int | None = None) -> str:
    """The longest piece found that measures at most `limit`; whole lines where near.

    It is from the start, or from the end of what stands behind a place. Guesses by proportion first, then halves: no
    more than SEARCH_ROUNDS pieces are measured.
    """
    low, high = 0, min(len(text) - (behind or 0), limit * MAX_CHARS_PER_UNIT)
    size = min(high, limit * LIKELY_CHARS_PER_UNIT)
    for number in range(SEARCH_ROUNDS):
        measured = measure(_slice(text, size, behind))
        if measured <= limit:
            low = size
            if size == high or measured >= limit * CLOSE_ENOUGH:
                break
        else:
            high = size
        guess = int(size * limit / max(measured, 1)) if number < PROPORTIONAL_ROUNDS else (low + high) // 2
        size = min(max(guess, low + 1), high)
        if high - low <= 1:
            break
    piece = _slice(text, low, behind)
    lines = _whole_lines(piece, from_end=behind is not None)
    return lines if lines.strip() and measure(lines) <= limit else piece


def _slice(text: str, size: int, behind: int | None) -> str:
    """About `size` characters, no more, and none of those that a reader sees is cut."""
    if behind is None:
        return text[: floor_boundary(text, size, size - LONGEST_CLUSTER)]
    start = len(text) - size
    first = max(start - LOOK_BEHIND_CHARS, behind)  # the text is not copied for what stands behind that place
    near = text[first : start + LONGEST_CLUSTER]
    return text[first + ceil_boundary(near, start - first, start - first + LONGEST_CLUSTER) :]


def _whole_lines(piece: str, *, from_end: bool) -> str:
    slack = int(len(piece) * LINE_SLACK)
    if from_end:
        line_break = piece.find("\n", 0, slack)
        return piece[line_break + 1 :]
    line_break = piece.rfind("\n", len(piece) - slack)
    return piece if line_break < 0 else piece[:line_break]


def measure_bytes(text: str) -> int:
    """Bytes of a text in UTF-8."""
    if text.isascii():
        return len(text)
    pieces = (text[start : start + ENCODED_AT_ONCE] for start in range(0, len(text), ENCODED_AT_ONCE))
    return sum(len(piece.encode("utf-8", "surrogatepass")) for piece in pieces)
