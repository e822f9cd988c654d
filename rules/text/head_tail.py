"""Cut texts: into pieces, at a boundary of characters, and to their head and tail with a marker between them.

Laws: no single call into C code holds the GIL for long. A boundary is one between extended grapheme clusters (Unicode
Standard Annex 29), as `regex` implements them; only a small part of the text around the place is read, so the time does
not depend on the text's length. A shortened text never exceeds the limit by the given measure, and its marker says how
much is missing; nothing is known about the text's kind.
"""

from collections.abc import Callable, Iterator

import regex

from trimtab.rules.text.markers import mark_middle

PIECE_CHARS = 32_768  # The slowest operation on a whole text takes at most a few milliseconds for so many.


def cut_pieces(text: str, after: str = "\n", before: str = "", size: int = PIECE_CHARS) -> Iterator[str]:
    """Split the text into pieces of at most `size` characters; joined, they are the text.

    A piece ends after the last `after` in it. If it has none, it ends before the last `before` (if given). If it has
    neither, it is cut at `size`. `after` must be one character.
    """
    start = 0
    while len(text) - start > size:
        end = text.rfind(after, start, start + size) + 1
        if end <= start and before:
            end = text.rfind(before, start + 1, start + size)
        if end <= start:
            end = start + size
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def cut_lines(text: str, end_of_line: str = "\n") -> Iterator[str]:
    """Split the text into pieces of whole lines; joined, they are the text.

    A piece is longer than PIECE_CHARS only if it is a single line. An empty text is one empty piece.
    """
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = text.rfind(end_of_line, start, start + PIECE_CHARS) + 1
        if end <= start:
            end = text.find(end_of_line, start + PIECE_CHARS) + 1 or len(text)
        yield text[start:end]
        start = end
    if start < len(text) or not start:
        yield text[start:] if start else text


def holds(text: str, part: str) -> bool:
    """Whether the text contains `part`.

    A long text is searched in overlapping strides, because one search in hostile text may hold the GIL for long.
    """
    stride = 8 * PIECE_CHARS
    if len(text) <= stride:
        return part in text
    overlap = len(part) - 1
    return any(text.find(part, start, start + stride + overlap) >= 0 for start in range(0, len(text), stride))


LOOK_BEHIND_CHARS = 1024
"""Characters read before a place. Chosen: a boundary rarely depends on more. In a longer row of flag emoji, the letters
are paired from here on, so a flag may be split."""
_CLUSTER = regex.compile(r"\X")
"""`regex` also looks at the text before the start position. So a match that starts inside a cluster ends where that
cluster ends; `_is_boundary` relies on this."""


def floor_boundary(text: str, at: int, lowest: int = 0) -> int:
    """The last boundary in (lowest, at]; `at` itself if there is none, as in a hostile run of combining marks.

    So a caller that goes on from `lowest` always advances.
    """
    first = max(at - LOOK_BEHIND_CHARS, 0)
    near = text[first : at + 1]
    places = range(at, max(lowest, first - 1), -1)
    return next((place for place in places if _is_boundary(near, place - first)), at)


def ceil_boundary(text: str, at: int, highest: int) -> int:
    """The first boundary in [at, highest); `at` itself if there is none."""
    first = max(at - LOOK_BEHIND_CHARS, 0)
    near = text[first:highest]
    return next((place for place in range(at, highest) if _is_boundary(near, place - first)), at)


def _is_boundary(near: str, at: int) -> bool:
    found = _CLUSTER.match(near, at - 1, at + 1) if 0 < at < len(near) else None
    return found is None or found.end() == at


HEAD_SHARE = 0.4  # Of the budget. Chosen: logs end with errors and totals, so the tail gets the larger part.
LINE_SLACK = 0.2
"""A piece is shortened to whole lines if that drops at most this share of it. Chosen: else long lines would
leave most of the budget unused."""
SEARCH_ROUNDS = 12  # Maximum number of pieces measured to find one cut. Chosen: most cuts need two or three.
PROPORTIONAL_ROUNDS = 4  # Guess a size by proportion; later ones bisect. Chosen: converges on uneven texts, too.
CLOSE_ENOUGH = 0.97  # The search ends at a piece of this share of the limit. Chosen: each round is a measurement.
LIKELY_CHARS_PER_UNIT = 4  # The first guess: English text has about four characters per token
LONGEST_CLUSTER = 64
"""Maximum number of code points of one grapheme cluster that is kept whole. Chosen: only hostile runs of combining
marks are longer, and they are cut anywhere."""
MAX_CHARS_PER_UNIT = 128  # Bounds the first measured piece. No token of the vocabularies in use is longer.
ENCODED_AT_ONCE = 256 * 1024  # Characters in one call. Chosen: one with megabytes would hold the GIL.
MIN_TEXT_TOKENS = 24  # If a summary has less room, one fixed line replaces it. Chosen: a shorter text says too little.

Measure = Callable[[str], int]  # Returns the size of a text in the unit of the limit, for example tokens or bytes


def truncate_text(
    text: str, limit: int, measure: Measure, unit: str = "tokens", count_units: Measure | None = None, how: str = ""
) -> str:
    """Return head and tail of `text` with a marker between them, together at most `limit` by `measure`.

    The marker says how many lines are incomplete or missing, how much is missing in `unit`, counted by `count_units`
    (default: `measure`), and `how` to see it. If the text fits, it is returned unchanged. If not even the marker fits,
    the result is as much of the head as fits, without a marker.
    """
    if measure(text) <= limit:
        return text
    count_units = count_units or measure
    total = count_units(text)
    room = limit - measure(_mark(text.count("\n"), total, unit, how))
    # Tokens of head, marker and tail do not simply add up at their joins, so the room may have to shrink.
    for _ in range(SEARCH_ROUNDS):
        if room * HEAD_SHARE < 1:  # a beginning alone says more than a marker alone
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
    """The longest beginning found that measures at most `limit`, without a marker.

    It is empty only if not even the first code point fits.
    """
    # Of a first grapheme cluster that does not fit whole, as many code points as fit.
    points = (text[:size] for size in range(LONGEST_CLUSTER, 0, -1) if measure(text[:size]) <= limit)
    return _take(text, limit, measure) or next(points, "")


def _count_lines(text: str, start: int, stop: int) -> int:
    """The number of lines in text[start:stop], without one of which only a line break is there."""
    first = start + text.startswith("\n", start)
    return text.count("\n", first, stop - text.endswith("\n", first, stop)) + 1


def _mark(lines: int, size: int, unit: str, how: str) -> str:
    return f"\n{mark_middle(lines, size, unit, how)}\n"


def _take(text: str, limit: int, measure: Measure, *, behind: int | None = None) -> str:
    """The longest piece found that measures at most `limit`; whole lines if that costs little.

    Without `behind`, the piece is the beginning of the text. With it, the piece is the end of text[behind:]. At most
    SEARCH_ROUNDS pieces are measured.
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
    """At most `size` characters from the text's start, or from its end; the cut is between grapheme clusters."""
    if behind is None:
        return text[: floor_boundary(text, size, size - LONGEST_CLUSTER)]
    start = len(text) - size
    first = max(start - LOOK_BEHIND_CHARS, behind)  # a small slice, so that the long text is not copied
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
    """The number of bytes of a text in UTF-8; a lone surrogate counts three."""
    if text.isascii():
        return len(text)
    pieces = (text[start : start + ENCODED_AT_ONCE] for start in range(0, len(text), ENCODED_AT_ONCE))
    return sum(len(piece.encode("utf-8", "surrogatepass")) for piece in pieces)
