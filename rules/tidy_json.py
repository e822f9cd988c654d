"""JSON with less around its values: blanks between them gone, like objects as tables.

Law: a text's own characters stay within its strings, numbers and keys; nothing is decoded and written again. What is
not JSON to the letter (JSON5, Python's literals, a lone surrogate) is left alone; so are JSON lines, which are compact
already and are looked for line by line.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from rules.tidy_tables import make_tables

MIN_JSON_CHARS = 64
MAX_JSON_CHARS = 524_288
"""A longer one is left as it came: it would not fit any usual budget, and its check holds the interpreter too long."""
WRAPPER_CHARS = 512
"""What a tool may write before and behind a JSON body: a status, a tag, a prompt."""
MAX_TRIES = 3
MAX_DEPTH = 64
"""Nested deeper, it is not taken for JSON: the same everywhere, however much of the stack is in use."""
_BLANKS = " \t\r\n"
_OPENING = re.compile(r"(?:\A\s*+|^)([{\[])(?=[ \t\r\n]*+[\"{\[\]}\d\-tfn])", re.MULTILINE)
_CLOSING = re.compile(r"[}\]](?=[ \t\r]*+$)", re.MULTILINE)
_DELETE_BLANKS = str.maketrans("", "", _BLANKS)
_ONLY_BRACKETS = str.maketrans("", "", '",:0123456789+-.eEtrufalsn')
_RAW = msgspec.json.Decoder(msgspec.Raw)

Fits = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Body:
    """The JSON body of a text: where it stands, and how it reads without the blanks outside of its strings."""

    start: int
    stop: int
    compact: str | None
    """None where it is too long to be written anew."""


def find_json(text: str) -> Body | None:
    """The one JSON object or array that a text consists of, but for a few lines before and behind, if it does."""
    head = text[:WRAPPER_CHARS]
    if not ("\n{" in head or "\n[" in head or head.lstrip().startswith(("{", "["))):
        return None
    openings = list(_OPENING.finditer(text, 0, min(len(text), WRAPPER_CHARS)))[:MAX_TRIES]
    if not openings:
        return None
    closings = list(_CLOSING.finditer(text, max(len(text) - WRAPPER_CHARS, 0)))[::-1][:MAX_TRIES]
    for opening in openings:
        start = opening.start(1)
        for closing in closings:
            stop = closing.end()
            if stop - start < MIN_JSON_CHARS or (text[start] == "{") != (text[stop - 1] == "}"):
                continue
            if stop - start > MAX_JSON_CHARS:
                return Body(start, stop, None)
            compact = respace_json(text[start:stop])
            if compact is not None:
                return Body(start, stop, compact)
    return None


def shorten_json(text: str, body: Body, *, spaces: bool, tables: bool, fits: Fits) -> str:
    """The text with its JSON body in the shortest form of those allowed, if that fits; else the same text.

    `fits` is asked once at most. A text with a table is re-spaced, too.
    """
    if body.compact is None or not (spaces or tables):
        return text
    short = make_tables(body.compact) if tables else body.compact
    if len(short) >= body.stop - body.start or (short == body.compact and not spaces):
        return text
    whole = text[: body.start] + short + text[body.stop :]
    return whole if fits(whole) else text


def respace_json(text: str) -> str | None:
    """A JSON text without the blanks outside of its strings, every other character as it was.

    None where the text is not JSON to the letter (RFC 8259), or is deeper than MAX_DEPTH.
    """
    try:
        _RAW.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    # No control character stands in JSON: while it is split at its quotes, they stand for escaped ones.
    escaped = "\\" in text
    if escaped:
        text = text.replace("\\\\", "\x00\x01").replace('\\"', "\x00\x02")
    parts = text.split('"')
    between = '"'.join(parts[::2]).translate(_DELETE_BLANKS)
    if not _is_shallow(between):
        return None
    parts[::2] = between.split('"')
    text = '"'.join(parts)
    return text.replace("\x00\x02", '\\"').replace("\x00\x01", "\\\\") if escaped else text


def _is_shallow(between: str) -> bool:
    """Whether the brackets nest no deeper than MAX_DEPTH. Each round takes the innermost away."""
    brackets = between.translate(_ONLY_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace("[]", "").replace("{}", "")
        if not brackets:
            return True
    return False
