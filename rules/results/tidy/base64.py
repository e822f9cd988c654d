"""Base64 that no model reads: a picture, an archive, a certificate inside a text. Named, with its size, not carried."""

import hashlib
import re
from collections.abc import Iterator

from rules.text.chunks import PIECE_CHARS, holds

MIN_DATA_URL_CHARS = 512
MIN_RUN_CHARS = 1024
FILE_FACTOR = 8
"""In a code file only what is this many times longer: nobody copies 8000 characters of base64 into an edit, and
a short constant may be what is to be edited."""
_BLOCK_CHARS = 512
"""A run of twice as many characters covers one whole aligned block: the blocks are tried first, which is cheap."""
_BLOCK = re.compile(r"[A-Za-z0-9+/=_\-\\\r\n]{512}+")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-"
_CHARACTERS = _LETTERS + "\\\r\n"
_RUN = re.compile(
    r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{1024,}+={0,2}"
    r"|(?:[A-Za-z0-9+/]{60,76}(?:\r?\n|\\r\\n|\\n)){15,}+(?:[A-Za-z0-9+/]++={0,2})?)"
    r"|(?<![A-Za-z0-9_\-])[A-Za-z0-9_\-]{1024,}+={0,2}"
)
_LINE_ENDS = re.compile(r"\\r|\\n|\s")
_URL_HEAD = re.compile(r"data:([a-z]+/[\w.+\-]+)?(?:;[\w.+=\-]+)*+\Z", re.IGNORECASE)
_URL_HEAD_CHARS = 128
_ESCAPED = re.compile(r"u[0-9a-fA-F]{4}|.")
_SAMPLE_CHARS = 2048
_DIGEST_CHARS = 8
_MIN_DISTINCT = 40
"""Of the alphabet's 64: text and pictures in base64 show nearly all in 1000 characters; hex, DNA and words do not."""


def name_base64(text: str, *, is_file: bool) -> str:
    """The text with data URLs and long base64 runs named: their type, size and digest instead of their content.

    Equal runs get equal markers, different ones different markers: results that hold them can still be compared. The
    marker holds no quote and no backslash: JSON stays JSON. In a code file, only what is far longer.
    """
    factor = FILE_FACTOR if is_file else 1
    if len(text) < MIN_DATA_URL_CHARS * factor:
        return text
    if holds(text, ";base64,"):
        text = _name_data_urls(text, MIN_DATA_URL_CHARS * factor)
    spans = [span for span in _merge(_find_runs(text)) if span[1] - span[0] >= MIN_RUN_CHARS * factor]
    parts: list[str] = []
    done = 0
    for start, stop in spans:
        end = _trim_line_ends(text, stop)
        marker = f"[trimtab: base64, {_measure(text, start, end)}, omitted here]"
        parts += text[done:start], marker
        done = end
    return "".join((*parts, text[done:])) if done else text


def _trim_line_ends(text: str, stop: int) -> int:
    while text[stop - 1] in "\r\n" or text[stop - 2 : stop] in {"\\r", "\\n"}:
        stop -= 1 if text[stop - 1] in "\r\n" else 2
    return stop


def _name_data_urls(text: str, min_chars: int) -> str:
    parts: list[str] = []
    done = 0
    comma = text.find(";base64,")
    while comma >= 0:
        start, begin = comma - _URL_HEAD_CHARS, comma + len(";base64,")
        head = _URL_HEAD.search(text[max(start, done) : comma])
        end = _end_of(text, begin, _LETTERS)
        if head and end - begin >= min_chars:
            kind, measures = head[1] or "text/plain", _measure(text, begin, end)
            marker = f"[trimtab: data URL {kind}, {measures}, omitted here]"
            parts += text[done : comma - len(head[0])], marker
            done = end
        comma = text.find(";base64,", end)
    return "".join((*parts, text[done:])) if done else text


def _end_of(text: str, start: int, characters: str) -> int:
    """Where the run of `characters` that begins at `start` ends."""
    size = _BLOCK_CHARS
    while start < len(text):
        piece = text[start : start + size]
        size = min(2 * size, PIECE_CHARS)
        rest = piece.lstrip(characters)
        start += len(piece) - len(rest)
        if rest:
            break
    return start


def _find_runs(text: str) -> Iterator[tuple[int, int]]:
    done = 0
    for block in range(0, len(text) - _BLOCK_CHARS + 1, _BLOCK_CHARS):
        if block < done or not _BLOCK.match(text, block):
            continue
        before = text[max(block - _BLOCK_CHARS, done) : block]
        start = block - len(before) + len(before.rstrip(_CHARACTERS))
        done = _end_of(text, block, _CHARACTERS)
        for piece_start, piece_end in _cut_evenly(text, start, done):
            for first, last in _runs_in(text[piece_start:piece_end]):
                yield piece_start + first, piece_start + last


def _cut_evenly(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A span in pieces of about the same size, at line ends where there are any: no piece is too short for a run."""
    line_end = "\n" if "\n" in text[start : start + _BLOCK_CHARS] else "\\n"
    count = -(-(end - start) // PIECE_CHARS)
    done = start
    for number in range(1, count):
        near = start + (end - start) * number // count
        found = text.rfind(line_end, max(done, near - _BLOCK_CHARS), near)
        stop = near if found < 0 else found + len(line_end)
        yield done, stop
        done = stop
    yield done, end


def _runs_in(text: str) -> Iterator[tuple[int, int]]:
    middle = len(text) // 2
    if len(set(text[:_BLOCK_CHARS] + text[middle : middle + _BLOCK_CHARS])) < _MIN_DISTINCT // 2:
        return
    for run in _RUN.finditer(text):
        first, last = run.span()
        if first and text[first - 1] == "\\":
            escaped = _ESCAPED.match(text, first)
            first = escaped.end() if escaped else first
        if _is_base64(text[first : first + _SAMPLE_CHARS]):
            yield first, last


def _is_base64(sample: str) -> bool:
    letters = _LINE_ENDS.sub("", sample)
    distinct = set(letters)
    upper = sum(map(str.isupper, letters))
    lower = sum(map(str.islower, letters))
    digits = sum(map(str.isdigit, letters))
    few = len(letters) // 20
    return len(distinct) >= _MIN_DISTINCT and upper > few and lower > few and digits > len(letters) // 100


def _merge(spans: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def _measure(text: str, start: int, end: int) -> str:
    """Its size, and the beginning of the SHA-256 of it as it is written."""
    breaks = text.count("=", end - 2, end)
    digest = hashlib.sha256()
    for at in range(start, end, PIECE_CHARS):
        piece = text[at : min(at + PIECE_CHARS, end)]
        breaks += piece.count("\n") + piece.count("\r") + 2 * piece.count("\\")
        digest.update(piece.encode())
    return f"{(end - start - breaks) * 3 // 4} bytes, sha256 {digest.hexdigest()[:_DIGEST_CHARS]}"
